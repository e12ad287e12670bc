"""What all backends share, and those parts of the vLLM backend that need no vLLM (`make test-vllm` runs the rest)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import (
    AutoTokenizer,
    FalconH1Config,
    Gemma2Config,
    GPT2Config,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    MiniMaxConfig,
    PretrainedConfig,
    Qwen3NextConfig,
    ViTConfig,
)

from maxk import sampling
from maxk.artifacts.records import Policy
from maxk.config import Sampling
from maxk.errors import UserError
from maxk.sampling import Request, stopping

POLICY = Policy("base", "Base model", "nowhere")


def request(prompt: str) -> Request:
    return Request("p/0", prompt, 0, 4, seed=1)


@pytest.mark.parametrize("key", ["sampling.backend", "training.generator.backend"])
def test_vllm_is_never_replaced_silently(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"{key}=vllm: vLLM is not installed \(docs/sampling"):
        sampling.require_installed(key, "vllm")
    sampling.require_installed(key, "transformers")


def test_a_prompt_gets_one_beginning_of_sequence(base_model: str) -> None:
    """Chat templates write the token; the tokenizer must not add another."""
    calls = []

    def tokenizer(prompt: str, add_special_tokens: bool) -> dict[str, list[int]]:
        calls.append((prompt, add_special_tokens))
        return {"input_ids": [1]}

    tokenizer.bos_token = "<s>"
    requests = [request("<s>user"), request("user"), request("user")]
    sampling.encode(requests, tokenizer, Sampling(), None)
    assert calls == [("<s>user", False), ("user", True)]
    plain = AutoTokenizer.from_pretrained(base_model)
    assert sampling.encode([request("sort up\n")], plain, Sampling(), None)["sort up\n"] == plain("sort up\n").input_ids


def test_a_prompt_must_leave_room_for_the_completion(base_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base_model)
    length = len(tokenizer("sort up\n")["input_ids"])
    config = Sampling(max_tokens=10)
    sampling.encode([request("sort up\n")], tokenizer, config, length + 10)
    with pytest.raises(UserError, match=f"p/0: a prompt of {length} tokens and sampling.max_tokens=10 exceed the"):
        sampling.encode([request("sort up\n")], tokenizer, config, length + 9)


class Letters:
    """A tokenizer of one token per letter, with `_` as the end of sequence."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        return "".join(map(chr, ids)).replace("_", "")


@pytest.mark.parametrize(
    ("text", "kept"),
    [("ab", None), ("a\n```\n", "a\n```\n"), ("a\n```\nb\n```\n", "a\n```\n"), ("xENDy", "xEND"), ("END____", "END")],
)
def test_a_completion_is_cut_after_its_first_stop_string(text: str, kept: str | None) -> None:
    ids = stopping.cut([*map(ord, text)], ("\n```\n", "END"), Letters())
    assert (None if ids is None else "".join(map(chr, ids))) == kept


def test_finish_reasons_of_token_rows() -> None:
    rows = [[*map(ord, text)] for text in ("ab_", "abEND", "abc")]
    found = sampling.completions(rows, [ord("_")], ("END",), Letters())
    assert [(c.text, len(c.tokens), c.finish_reason) for c in found] == [
        ("ab", 3, "stop"),
        ("abEND", 5, "stop_string"),
        ("abc", 3, "length"),
    ]


def test_stop_tokens_are_the_policys_and_the_configs(base_model: str) -> None:
    tokenizer, policy = AutoTokenizer.from_pretrained(base_model), Policy("base", "Base model", base_model)
    assert sampling.stop_tokens(policy, tokenizer, Sampling()) == [tokenizer.eos_token_id]
    more = sampling.stop_tokens(policy, tokenizer, Sampling(stop_tokens=("<unknown>",)))
    assert more == sorted([tokenizer.eos_token_id, tokenizer.unk_token_id])
    endless = SimpleNamespace(eos_token_id=None, get_vocab=dict)
    with pytest.raises(UserError, match="has no end-of-sequence token"):
        sampling.stop_tokens(POLICY, endless, Sampling())


TINY = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
UNSUPPORTED = {
    "mamba": (MambaConfig(**TINY), "MambaForCausalLM"),
    "attention beside state spaces": (FalconH1Config(**TINY, num_key_value_heads=1), "FalconH1ForCausalLM"),
    "linear attention": (Qwen3NextConfig(**TINY, num_key_value_heads=1), "Qwen3NextForCausalLM"),
    "convolution": (Lfm2Config(**TINY, num_key_value_heads=1, full_attn_idxs=[1]), "Lfm2ForCausalLM"),
    "lightning attention": (MiniMaxConfig(**TINY, num_key_value_heads=1), "MiniMaxForCausalLM"),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_models_whose_cache_cannot_be_split_are_named(kind: str, tmp_path: Path) -> None:
    config, name = UNSUPPORTED[kind]
    config.save_pretrained(tmp_path)
    policy = Policy("base", "Base model", str(tmp_path))
    with pytest.raises(UserError, match=f"is a {name}, whose recurrent state sampling.backend=transformers cannot"):
        sampling.require_supported(policy, Sampling())
    sampling.require_supported(policy, Sampling(backend="vllm"))


@pytest.mark.parametrize("config", [LlamaConfig(**TINY), Gemma2Config(**TINY, sliding_window=8), GPT2Config()])
def test_models_whose_cache_can_be_split_pass(config: PretrainedConfig, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    sampling.require_supported(Policy("base", "Base model", str(tmp_path)), Sampling())


def test_a_model_that_writes_no_text_is_named(tmp_path: Path) -> None:
    ViTConfig().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="is a vit, which transformers cannot use to generate text"):
        sampling.require_supported(Policy("base", "Base model", str(tmp_path)), Sampling())


@pytest.mark.parametrize(
    ("config", "sampled", "limit"),
    [
        (LlamaConfig(**TINY, max_position_embeddings=100), {}, 100),
        (GPT2Config(n_positions=77), {}, 77),
        (MambaConfig(**TINY), {"backend": "vllm"}, None),
        (LlamaConfig(**TINY, max_position_embeddings=100), {"backend": "vllm"}, 100),
        (LlamaConfig(**TINY, max_position_embeddings=100), {"backend": "vllm", "vllm": {"max_model_len": 60}}, 60),
        (
            LlamaConfig(
                **TINY,
                max_position_embeddings=100,
                rope_parameters={
                    "rope_type": "yarn",
                    "rope_theta": 1e4,
                    "factor": 4.0,
                    "original_max_position_embeddings": 100,
                },
            ),
            {"backend": "vllm"},
            400,
        ),
    ],
)
def test_the_context_of_a_model(config: PretrainedConfig, sampled: dict, limit: int | None, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    assert sampling.context_limit(Policy("base", "Base model", str(tmp_path)), Sampling(**sampled)) == limit
