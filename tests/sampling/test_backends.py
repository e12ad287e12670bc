"""What all backends share, and those parts of the vLLM backend that need no vLLM (`make test-vllm` runs the rest)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from maxk import sampling
from maxk.artifacts.records import Policy
from maxk.config import Sampling
from maxk.errors import UserError
from maxk.sampling import Request, stopping

POLICY = Policy("base", "Base model", "nowhere")


def request(prompt: str) -> Request:
    return Request("p/0", prompt, 0, 4, seed=1)


def test_vllm_is_never_replaced_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"sampling\.backend=vllm: vLLM is not installed here; docs/sampling\.md"):
        sampling.BACKENDS["vllm"](POLICY, Sampling(backend="vllm"))


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
    with pytest.raises(UserError, match="names no end-of-sequence token"):
        sampling.stop_tokens(POLICY, endless, Sampling())
