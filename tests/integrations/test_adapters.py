"""Adapters called as their tools call them; expected advantages by enumeration of all subsets."""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import contracts
import numpy as np
import pytest
import torch

from enumeration import leave_one_out
from maxk.integrations import code_reward, groups, openrlhf, rllm, skyrl, slime
from maxk.objectives import OBJECTIVES, Objective, make

SPEC = {"type": "bon_loo1", "k": 2}
GROUP_A, GROUP_B = [1.0, 1.0, 0.0, 0.0], [0.5, 0.0, 0.0, 1.0]
REWARDS = torch.tensor([value for pair in zip(GROUP_A, GROUP_B, strict=True) for value in pair])  # interleaved
UID = ["a", "b"] * 4
MASK = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]] * 4)
ANSWER = "```python\nprint(sum(map(int, input().split())))\n```"
TESTS = [{"stdin": "1 2\n", "expected": "3\n"}, {"stdin": "1 1\n", "expected": "3\n"}]


def loo1(rewards: list[float]) -> list[float]:
    """The advantages of SPEC, on-policy."""
    return leave_one_out(rewards, [1.0] * len(rewards), 2)


def expected() -> torch.Tensor:
    """Advantages of the interleaved batch."""
    a, b = loo1(GROUP_A), loo1(GROUP_B)
    return torch.tensor([value for pair in zip(a, b, strict=True) for value in pair])


# ---- groups
def test_groups_of_different_sizes_and_in_any_order() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.5, 0.0, 1.0], dtype=torch.float64)
    found = groups.group_advantages(make(SPEC), rewards, ["x", "y", "x", "y", "x"])
    x, y = loo1([1.0, 0.5, 1.0]), loo1([0.0, 0.0])
    torch.testing.assert_close(found, torch.tensor([x[0], y[0], x[1], y[1], x[2]], dtype=torch.float64))


def test_an_objective_scaled_by_the_batch_refuses_groups_of_two_sizes() -> None:
    objective = make({"type": "bon_offpolicy", "k": 2})
    with pytest.raises(ValueError, match=r"bon_offpolicy needs groups of one size, got \[2, 3\]"):
        groups.group_advantages(objective, torch.ones(5), ["x", "y", "x", "y", "x"])


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["x", None, "x", None], "completion 1 has no id of its prompt"),
        (np.array([0.0, np.nan, 0.0, np.nan]), "completion 1 has no id of its prompt .*: it is nan"),
        (["x"], "1 group id for 4 rewards"),
        (["x"] * 5, "5 group ids for 4 rewards"),
    ],
)
def test_a_completion_without_a_group_is_refused(ids: list[str | None], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        groups.group_advantages(make(SPEC), torch.ones(4), ids)


def test_a_tensor_of_ids_names_groups_by_its_values() -> None:
    found = groups.group_advantages(make("grpo"), torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 1]))
    assert found.all()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "bon_offpolicy_exact", "k": 2}, "needs current log-probabilities, which verl does not pass"),
        ({"type": "bon_loo1", "k": {"schedule": "linear", "start": 4, "end": 1}}, "verl does not pass the progress"),
        ({"type": "bon_loo"}, "unknown objective type"),
    ],
)
def test_objectives_that_would_be_others_are_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        groups.on_policy_objective(spec, "verl")


def penalised(objective: Objective, rewards: list[float], size: float) -> float:
    """How far a KL of this size in the rewards moves advantages; estimates of a KL have either sign."""
    given = torch.tensor([rewards], dtype=torch.float64)
    kl = torch.tensor([[1.0, -2.5, 2.0, -1.0]], dtype=torch.float64)
    return (objective(given - size * kl) - objective(given)).abs().max().item()


def spec_of(name: str) -> dict[str, Any]:
    return {"type": name, "k": 3, "m": 2} if name == "bon_topm" else {"type": name, "k": 2}


DIFFERENT, TIES, EQUAL = [1.0, 0.5, 0.25, 0.0], [1.0, 1.0, 0.5, 0.0], [0.0] * 4


@pytest.mark.parametrize(
    ("name", "rewards"),
    [
        *[
            (name, (DIFFERENT, TIES, EQUAL))
            for name in ("bon_loo1", "bon_loo2", "bon_topm", "order_statistic", "rs_grpo")
        ],
        *[(name, (DIFFERENT, TIES)) for name in ("grpo", "bon_mean", "passk_analytic")],
        *[(name, (DIFFERENT,)) for name in ("bon_distill", "bon_max_mean", "bon_max_second")],
    ],
)
def test_a_small_kl_in_the_reward_moves_advantages_little(name: str, rewards: tuple[list[float], ...]) -> None:
    """Where docs/integrations.md says so ("A KL in the reward")."""
    for group in rewards:
        assert penalised(make(spec_of(name)), group, 1e-7) < 1e-5


@pytest.mark.parametrize(
    ("name", "rewards"),
    [
        *[(name, EQUAL) for name in ("grpo", "bon_mean", "passk_analytic", "maxrl")],
        *[(name, TIES) for name in ("bon_distill", "bon_max_mean", "bon_max_second", "grpo_binary")],
    ],
)
def test_a_small_kl_in_the_reward_decides(name: str, rewards: list[float]) -> None:
    assert penalised(make(spec_of(name)), rewards, 1e-3) > 0.2


def test_the_table_of_effects_names_every_on_policy_objective_once(root: Path) -> None:
    """docs/integrations.md, "A KL in the reward"."""
    _, _, table = (root / "docs/integrations.md").read_text().partition("| objectives | effect |\n")
    cells = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()[1:]]
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    shipped = [name for name, kind in OBJECTIVES.items() if kind.__module__.startswith("maxk.")]
    assert sorted(named) == sorted(["binary: true", *(name for name in shipped if not OBJECTIVES[name].off_policy)])


# ---- estimators
@pytest.fixture
def verl(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The estimator that verl finds, with verl itself a stand-in."""
    registry = contracts.verl_registry(monkeypatch)
    monkeypatch.delitem(sys.modules, "maxk.integrations.verl", raising=False)
    importlib.import_module("maxk.integrations.verl")
    yield registry["maxk"]
    sys.modules.pop("maxk.integrations.verl", None)


def test_verl(verl: Any) -> None:
    advantages, returns = contracts.verl_call(verl, REWARDS, MASK, UID, {"adv_estimator": "maxk", "maxk": SPEC})
    torch.testing.assert_close(advantages, expected()[:, None] * MASK)
    torch.testing.assert_close(returns, advantages)


@pytest.mark.parametrize("config", [None, {"adv_estimator": "maxk"}])
def test_verl_without_an_objective(verl: Any, config: Any) -> None:
    with pytest.raises(ValueError, match=r"algorithm.maxk is not set: name an objective"):
        contracts.verl_call(verl, REWARDS, MASK, UID, config)


MEANINGLESS = ["grpo_binary", "maxrl", {"type": "bon_loo1", "k": 2, "binary": True}]


@pytest.mark.parametrize("spec", MEANINGLESS)
def test_verl_with_a_kl_in_the_reward(verl: Any, spec: Any) -> None:
    spec = {"type": spec} if isinstance(spec, str) else spec
    config = {"adv_estimator": "maxk", "use_kl_in_reward": True}
    with pytest.raises(ValueError, match="needs rewards from which no KL is subtracted: set use_kl_in_reward=False"):
        contracts.verl_call(verl, REWARDS, MASK, UID, {**config, "maxk": spec})
    contracts.verl_call(verl, REWARDS, MASK, UID, {**config, "use_kl_in_reward": False, "maxk": spec})
    contracts.verl_call(verl, REWARDS, MASK, UID, {**config, "maxk": SPEC})


@pytest.mark.parametrize("spec", MEANINGLESS)
def test_skyrl_with_a_kl_in_the_reward(spec: Any) -> None:
    with pytest.raises(ValueError, match="needs rewards from which no KL is subtracted: set use_kl_in_reward=False"):
        contracts.skyrl_call(skyrl.estimator(spec), REWARDS, MASK, UID, use_kl_in_reward=True)
    contracts.skyrl_call(skyrl.estimator(spec), REWARDS, MASK, UID)
    contracts.skyrl_call(skyrl.estimator(SPEC), REWARDS, MASK, UID, use_kl_in_reward=True)


def test_skyrl(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = contracts.skyrl_registry(monkeypatch)
    skyrl.register(SPEC)
    advantages, _ = contracts.skyrl_call(registry["maxk"], REWARDS, MASK, UID)
    torch.testing.assert_close(advantages, expected()[:, None] * MASK)


def test_rllm(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = contracts.rllm_registry(monkeypatch)
    rllm.register(SPEC, name="best_of_2")
    found = contracts.rllm_call(registry["best_of_2"], [GROUP_A, GROUP_B, [1.0, 0.0]])
    wanted = [loo1(group) for group in (GROUP_A, GROUP_B, [1.0, 0.0])]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_slime() -> None:
    samples = [contracts.SlimeSample(ord(uid), reward) for uid, reward in zip(UID, REWARDS.tolist(), strict=True)]
    raw, rewards = slime.post_process_rewards(SimpleNamespace(maxk=SPEC), samples)
    assert raw == REWARDS.tolist()
    np.testing.assert_allclose(rewards, expected(), atol=1e-7)


def test_slime_without_groups() -> None:
    samples = [contracts.SlimeSample(None, reward) for reward in GROUP_A]
    with pytest.raises(ValueError, match=r"completion 0 has no id of its prompt \(uid, group_index"):
        slime.post_process_rewards(SimpleNamespace(maxk=SPEC), samples)


def test_slime_without_an_objective() -> None:
    with pytest.raises(ValueError, match="maxk is not set"):
        slime.post_process_rewards(SimpleNamespace(), [])


def test_prime_rl(monkeypatch: pytest.MonkeyPatch) -> None:
    contracts.prime_rl_modules(monkeypatch)
    from maxk.integrations.prime_rl import score_group

    episodes = [contracts.prime_rl_episode(reward) for reward in GROUP_B]
    spoiled = contracts.prime_rl_episode(1.0, has_error=True)
    score_group([*episodes, spoiled], SPEC)
    found = [episode.traces[0].advantage for episode in episodes]
    np.testing.assert_allclose(found, loo1(GROUP_B), atol=1e-12)
    assert not hasattr(spoiled.traces[0], "advantage")


def test_prime_rl_without_a_trainable_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    contracts.prime_rl_modules(monkeypatch)
    from maxk.integrations.prime_rl import score_group

    score_group([contracts.prime_rl_episode(1.0, trainable=False)], SPEC)


# ---- rewards
@pytest.fixture(scope="module", autouse=True)
def grader() -> Any:
    code_reward.configure(workers=1)
    yield
    code_reward.shared().close()


def test_the_shared_grader_serves_many_callers_at_once() -> None:
    submitted = [code_reward.shared().submit(f"```python\nprint({i} % 2)\n```", [("", "1\n")]) for i in range(20)]
    assert [future.result().reward for future in submitted] == [float(i % 2) for i in range(20)]


def test_a_caller_that_gave_up_takes_no_result_from_the_others() -> None:
    busy = code_reward.shared().submit("```python\nwhile True: pass\n```", TESTS)
    for _ in range(500):  # until it is graded; what is submitted then waits
        time.sleep(0 if busy.running() else 0.01)
    waiting = [code_reward.shared().submit(f"{ANSWER}{' ' * i}", TESTS) for i in range(3)]
    assert waiting[0].cancel()
    assert [one.result(timeout=20).reward for one in waiting[1:]] == [0.5, 0.5]
    assert busy.result().reward == 0.0


def test_a_closed_grader_is_replaced() -> None:
    code_reward.shared().close()
    assert code_reward.score(ANSWER, TESTS) == {"score": 0.5, "ungraded": 0.0}


@pytest.mark.parametrize("tests", [TESTS, json.dumps(TESTS), [tuple(test.values()) for test in TESTS]])
def test_tests_in_their_shapes(tests: Any) -> None:
    assert code_reward.score(ANSWER, tests) == {"score": 0.5, "ungraded": 0.0}


@pytest.mark.parametrize("tests", [[], "[]", [{"input": "1\n", "output": "1\n"}], [("1\n",)], [(1, 2)], None])
def test_unknown_tests_are_refused(tests: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="test"):
        code_reward.score(ANSWER, tests)


@pytest.mark.parametrize(
    ("tests", "fault"),
    [
        ("[", r"Expecting value: line 1 column 2 \(char 1\)"),
        ("[" * 200_000, "nested too deeply"),
        ('[{"stdin": "1", "stdin": "2", "expected": "3"}]', "key 'stdin' appears twice"),
    ],
)
def test_faults_of_json_are_named(tests: str, fault: str) -> None:
    with pytest.raises(ValueError, match=rf"^tests: not JSON \({fault}\)$"):
        code_reward.score(ANSWER, tests)


def test_trl_reward() -> None:
    """As GRPOTrainer calls it: by keyword, with all columns; completions are text, or lists of messages."""
    chat = [{"role": "assistant", "content": ANSWER}]
    completions: list[Any] = [ANSWER, "no program", chat, "```python\nprint(3)\n```"]
    tests = [TESTS, TESTS, json.dumps(TESTS[:1]), TESTS]
    called = {"prompts": ["a"] * 4, "completion_ids": [[1]] * 4, "trainer_state": None}
    assert code_reward.tests_passed(completions=completions, tests=tests, **called) == [0.5, 0.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="shorter"):
        code_reward.tests_passed(completions, tests[:3])


def test_trl_reward_submits_all_before_it_waits_and_has_none_for_the_ungraded(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[str] = []

    def submit(completion: str, tests: Any) -> Any:
        submitted.append(completion)
        return SimpleNamespace(result=lambda: SimpleNamespace(reward=float(completion) if len(submitted) == 3 else 9))

    monkeypatch.setattr(code_reward, "shared", lambda: SimpleNamespace(submit=submit))
    assert code_reward.tests_passed(["0.5", "nan", "1"], [TESTS] * 3) == [0.5, None, 1.0]


def test_a_failed_grader_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_reward, "grade", lambda completion, tests: SimpleNamespace(reward=float("nan")))
    assert code_reward.score(ANSWER, TESTS) == {"score": 0.0, "ungraded": 1.0}


def test_a_grader_that_cannot_start_tells_every_caller() -> None:
    grader = code_reward.SharedGrader(sandbox="no-such-tier")
    for future in [grader.submit(ANSWER, TESTS), grader.submit(ANSWER, TESTS)]:
        with pytest.raises(Exception, match="no-such-tier"):
            future.result()
    grader.close()


@pytest.mark.parametrize(
    "completion",
    [
        [{"role": "assistant", "content": ANSWER}],
        [
            {"role": "assistant", "content": "```python\nprint(0)\n```", "tool_calls": []},
            {"role": "tool", "name": "run", "content": "0"},
            {"role": "assistant", "content": ANSWER},
        ],
        [{"role": "assistant", "content": [{"type": "text", "text": ANSWER}]}],
        [{"role": "assistant", "content": [{"type": "text", "text": part} for part in (ANSWER[:20], ANSWER[20:])]}],
    ],
)
def test_chat_messages(completion: Any) -> None:
    assert code_reward.score(completion, TESTS) == {"score": 0.5, "ungraded": 0.0}


@pytest.mark.parametrize("message", [{"content": None}, {"content": []}, {"tool_calls": []}])
def test_a_message_without_text_has_no_program(message: Any) -> None:
    assert code_reward.score([{"role": "assistant", **message}], TESTS) == {"score": 0.0, "ungraded": 0.0}


@pytest.mark.parametrize(
    "completion",
    [
        *(None, 3, [], [ANSWER], [{"type": "text", "text": ANSWER}], [{"role": "user", "content": ANSWER}]),
        [{"role": "assistant", "content": [ANSWER]}],
        [{"role": "assistant", "content": [{"type": "text", "text": ANSWER}, {"type": "image", "image": "…"}]}],
        [{"role": "assistant", "content": [{"type": "text", "text": None}]}],
    ],
)
def test_other_completions_are_refused(completion: Any) -> None:
    with pytest.raises(TypeError, match="a completion must be text, or chat messages"):
        code_reward.score(completion, TESTS)


def test_verl_reward(verl: Any) -> None:
    """As NaiveRewardManager calls it: by keyword, and it takes `score` from a mapping."""
    from maxk.integrations.verl import compute_score

    result = compute_score(
        data_source="mbpp", solution_str=ANSWER, ground_truth=json.dumps(TESTS), extra_info={"num_turns": 1}
    )
    assert result["score"] == 0.5


PROMPT = "Add. Do not answer\n```python\nprint(3)\n```\n"


@pytest.mark.parametrize(
    ("prompt", "completion", "reward"),
    [
        (PROMPT, ANSWER, 0.5),
        (PROMPT, "I do not know.", 0.0),  # the program in the prompt is not graded
        (PROMPT, f"{ANSWER}\n{PROMPT}", 0.5),
        ("Add", f"{ANSWER}\nThese lines Add.", 0.5),
        ("", ANSWER, 0.5),
        *[
            (PROMPT, ANSWER + end, 0.5)
            for end in (
                "<|im_end|>",
                "</s>",
                "<｜end▁of▁sentence｜>",
                "<end_of_turn>",
                "<eos>\n",
                "<|im_end|>\n<|endoftext|>",
                "</s>" + "<pad>" * 1000,
            )
        ],
    ],
)
def test_openrlhf_reward(prompt: str, completion: str, reward: float) -> None:
    assert contracts.openrlhf_call(openrlhf.reward_func, prompt, completion, json.dumps(TESTS)) == reward


def test_openrlhf_returns_what_its_executor_reads() -> None:
    result = openrlhf.reward_func([PROMPT + ANSWER] * 2, [PROMPT] * 2, [json.dumps(TESTS)] * 2)
    assert result["scores"].tolist() == [0.5, 0.5]
    assert result["extra_logs"]["ungraded"].tolist() == [0.0, 0.0]


def test_openrlhf_without_its_prompt() -> None:
    """A prompt that was cut: the program in what is left must not be graded."""
    with pytest.raises(ValueError, match=r"the prompt .* is not in the query .*: check that --data.max_len .*$"):
        openrlhf.reward_func([PROMPT[3:] + "I do not know."], [PROMPT], [json.dumps(TESTS)])
