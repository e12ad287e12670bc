"""The training reward is the grader's verdict: nothing more, nothing less."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from maxk import config as configuration
from maxk.artifacts.records import Problem, Test
from maxk.config import Config
from maxk.errors import UserError
from maxk.grading import Grader, Verdict
from maxk.training.grading import Grading
from maxk.training.reward import PassRateReward

ROOT = Path(__file__).parent.parent.parent

PROBLEMS = [
    Problem("p/0", "p", "train", "sum", [Test("1 2", "3"), Test("4 5", "9"), Test("0 0", "0"), Test("1 1", "2")]),
    Problem("p/1", "p", "train", "echo", [Test("a", "a"), Test("b", "b")], time_limit_s=1.0),
]
SUM = "print(sum(map(int, input().split())))"


def experiment() -> Config:
    """The default experiment, with one grading process."""
    content = configuration.read_yaml(ROOT / "config" / "config.yaml")
    return configuration.parse(configuration.overlay(content, {"verification": {"workers": 1}}))


@pytest.fixture(scope="module", params=[False, True], ids=["thread", "process"])
def grading(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grading]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("experiment"))  # for the verdict cache
        with Grading(experiment(), PROBLEMS, apart=request.param) as one:
            yield one


@pytest.fixture
def reward(grading: Grading) -> PassRateReward:
    return PassRateReward(grading)


@pytest.mark.parametrize(
    ("completion", "problem", "expected"),
    [
        (SUM, "p/0", 1.0),
        (f"Here it is:\n```python\n{SUM}\n```\nDone.", "p/0", 1.0),
        ("print(9)", "p/0", 0.25),
        ("print(input())", "p/1", 1.0),
        (SUM, "p/1", 0.0),
        ("This is no program.", "p/0", 0.0),
        ("", "p/0", 0.0),
        ("while True: pass", "p/1", 0.0),
    ],
)
def test_reward_is_the_fraction_of_passed_tests(
    completion: str, problem: str, expected: float, reward: PassRateReward
) -> None:
    assert reward([completion], [problem]) == [expected]


def test_rewards_come_in_order_also_from_chat_messages(reward: PassRateReward) -> None:
    completions = [[{"role": "assistant", "content": text}] for text in (SUM, "print(9)", "print(input())")]
    assert reward(completions, ["p/0", "p/0", "p/1"], prompts=[], trainer_state=None) == [1.0, 0.25, 1.0]


def test_rewards_can_be_started_before_they_are_asked_for(reward: PassRateReward) -> None:
    """A call without `start` grades by itself."""
    reward.start([SUM, "print(9)"], ["p/0", "p/0"])
    assert reward([], []) == [1.0, 0.25]
    assert reward(["print(input())"], ["p/1"]) == [1.0]


def test_an_error_while_grading_reaches_the_trainer(reward: PassRateReward) -> None:
    reward.start([SUM], ["p/2"])
    with pytest.raises(KeyError, match="p/2"):
        reward([SUM], ["p/2"])


def test_the_sandbox_and_faults_are_known(grading: Grading) -> None:
    with Grader(workers=1) as here:
        assert grading.tier == here.tier
    assert grading.complaints() == []


def test_what_could_not_be_graded_has_no_reward(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with Grading(experiment(), PROBLEMS, apart=False) as grading:
        verdicts = [Verdict(("passed", "harness_error")), Verdict(("passed",))]
        monkeypatch.setattr(Grader, "grade", lambda *_: verdicts)
        assert PassRateReward(grading)([SUM, SUM], ["p/0", "p/0"]) == [None, 1.0]


# ---- a process of its own


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[PassRateReward, psutil.Process]]:
    """A reward, and the process that grades for it."""
    monkeypatch.chdir(tmp_path)
    with Grading(experiment(), PROBLEMS, apart=True) as grading:
        yield PassRateReward(grading), grader_of(psutil.Process())


def grader_of(parent: psutil.Process) -> psutil.Process:
    """The one that was started last."""
    spawned = [child for child in parent.children() if "spawn_main" in " ".join(child.cmdline())]
    return max(spawned, key=psutil.Process.create_time)


def test_a_signal_to_all_processes_is_left_to_the_trainer(apart: tuple[PassRateReward, psutil.Process]) -> None:
    """A cluster sends SIGTERM to a whole job; the trainer still needs the rewards of the batch at work."""
    reward, process = apart
    for number in (signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
    assert reward([SUM], ["p/0"]) == [1.0]


def test_graded_programs_do_not_inherit_that(apart: tuple[PassRateReward, psutil.Process]) -> None:
    reward, _ = apart
    assert reward(["import os\nos.kill(os.getpid(), 15)\nprint(input())"], ["p/1"]) == [0.0]


def test_the_end_of_the_process_is_one_line(apart: tuple[PassRateReward, psutil.Process]) -> None:
    reward, process = apart
    process.kill()
    with pytest.raises(UserError, match=r"grades completions was killed, .* continues from its last checkpoint"):
        reward([SUM], ["p/0"])


def test_no_process_outlives_a_killed_trainer(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "if __name__ == '__main__':\n"
        "    sys.path.insert(0, sys.argv[1])\n"
        "    from test_reward import PROBLEMS, Grading, experiment\n"
        "    with Grading(experiment(), PROBLEMS, apart=True):\n"
        "        print('open', flush=True)\n"
        "        time.sleep(600)\n"
    )
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "script.py", str(Path(__file__).parent)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "open\n"
        children = psutil.Process(trainer.pid).children(recursive=True)
        assert len(children) >= 2  # the process that grades and its servers
        trainer.kill()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
