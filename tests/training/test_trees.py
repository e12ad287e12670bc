"""Trees of completions give the log-probabilities and gradients of one row per completion."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import config, make_trainer
from torch import Tensor
from transformers import LlamaConfig, Qwen2Config

from maxk.trl import MaxkTrainer, trees

# Of prompts: equal ones apart, one of one token; of completions: equal ones, beginnings of others, one that is empty.
BATCH = [
    ([2, 3, 4], [5, 6, 1]),
    ([7], [5, 6, 1]),
    ([2, 3, 4], [5, 6, 7, 1]),
    ([2, 3, 4], [5, 6, 1]),
    ([8, 9], []),
    ([2, 3, 4], [9, 1]),
    ([7], [5]),
]
KEPT = 4


def padded() -> tuple[Tensor, Tensor]:
    """Prompts padded on the left, completions on the right, as TRL lays them out."""
    rows = [
        ([0] * (3 - len(p)) + p + c + [0] * (KEPT - len(c)), [0] * (3 - len(p)) + [1] * len(p + c)) for p, c in BATCH
    ]
    return torch.tensor([ids for ids, _ in rows]), torch.tensor([real + [0] * (7 - len(real)) for _, real in rows])


def plain(model: torch.nn.Module, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies of completion tokens, one row per completion, by the model's own head."""
    ids, mask = padded()
    log_p = (model(input_ids=ids, attention_mask=mask).logits[:, :-1] / temperature).log_softmax(-1)[:, -KEPT:]
    real = mask[:, -KEPT:].bool()
    own = log_p.gather(-1, ids[:, -KEPT:, None])[..., 0]
    return own.masked_fill(~real, 0.0), -(log_p.exp() * log_p).sum(-1).masked_fill(~real, 0.0)


def of_trees(trainer: MaxkTrainer) -> tuple[Tensor, Tensor]:
    found = trainer._get_per_token_logps_and_entropies(trainer.model, *padded(), KEPT, compute_entropy=True)
    return found[0], found[1]


def gradient(model: torch.nn.Module, log_p: Tensor) -> Tensor:
    weights = torch.linspace(-1, 2, log_p.numel()).view_as(log_p)
    model.zero_grad()
    torch.autograd.backward((log_p * weights).sum())
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


@pytest.mark.parametrize("vocabulary", [trees.VOCABULARY, 1], ids=["all logits at once", "TRL's head"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_and_gradients_are_those_of_single_rows(
    temperature: float, vocabulary: int, letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "VOCABULARY", vocabulary)
    trainer = make_trainer(letters_model, config(tmp_path, temperature=temperature))
    model = trainer.model
    expected, expected_entropies = plain(model, temperature)
    expected_gradient = gradient(model, expected)
    found, entropies = of_trees(trainer)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropies, expected_entropies, rtol=1e-5, atol=1e-5)
    assert expected_gradient.norm() > 0.1
    torch.testing.assert_close(gradient(model, found), expected_gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("vocabulary", [trees.VOCABULARY, 1], ids=["all logits at once", "TRL's head"])
@pytest.mark.parametrize("wanted", [True, False])
def test_entropies_are_computed_where_they_are_asked_for(
    wanted: bool, vocabulary: int, letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL asks for them in the loss, not of the reference policy."""
    monkeypatch.setattr(trees, "VOCABULARY", vocabulary)
    trainer = make_trainer(letters_model, config(tmp_path))
    _, entropies = trainer._of_nodes(trainer.model, trees.build(*padded(), KEPT).inputs, wanted)
    assert (entropies is not None) == wanted


def test_prompts_of_one_token_without_completions(letters_model: str, tmp_path: Path) -> None:
    """As where every completion of a micro-batch is truncated and masked."""
    trainer = make_trainer(letters_model, config(tmp_path))
    ids, mask = torch.tensor([[7, 5, 6], [8, 5, 6], [7, 5, 6]]), torch.tensor([[1, 0, 0]] * 3)
    log_p, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, 2)
    assert torch.equal(log_p, torch.zeros(3, 2))
    assert torch.all(gradient(trainer.model, log_p) == 0)


def test_every_distinct_prefix_is_one_node() -> None:
    """Of [2, 3, 4]: two tokens of the prompt, then 5, 56, 561, 567, 5671, 9, 91. Shorter prompts
    come first; theirs are padded."""
    tree = trees.build(*padded(), KEPT)
    assert tree.inputs["input_ids"].shape == (3, 9)
    assert tree.inputs["shift_labels"][2].tolist() == [-100, -100, 5, 6, 1, 7, 1, 9, 1]
    assert tree.inputs["input_ids"][2].tolist() == [2, 3, 4, 5, 6, 6, 7, 4, 9]
    assert tree.inputs["position_ids"][2].tolist() == [0, 1, 2, 3, 4, 4, 5, 2, 3]


def test_models_that_see_otherwise_are_not_supported() -> None:
    def configured(kind: type, implementation: str = "sdpa", **options: object) -> object:
        made = kind(**options)
        made._attn_implementation = implementation
        return made

    assert trees.supports(configured(LlamaConfig))
    assert trees.supports(configured(Qwen2Config))
    assert not trees.supports(configured(LlamaConfig, "flash_attention_2"))
    sliding = configured(Qwen2Config, use_sliding_window=True, sliding_window=8, max_window_layers=0)
    assert not trees.supports(sliding)


@pytest.mark.parametrize(("length", "shared"), [(1024, True), (1025, False)])
def test_no_mask_is_larger_than_its_bound(length: int, shared: bool, letters_model: str, tmp_path: Path) -> None:
    trainer = make_trainer(letters_model, config(tmp_path, num_generations=4, max_completion_length=length))
    seen: list[bool] = []
    forward = trainer.model.forward
    trainer.model.forward = lambda **inputs: seen.append("position_ids" in inputs) or forward(**inputs)
    ids, mask = padded()
    trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, KEPT)
    assert seen == [shared]
