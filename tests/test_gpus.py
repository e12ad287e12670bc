"""GPU locks, without a GPU: a stand-in for `nvidia-smi` lists devices, and separate processes lock them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxk.errors import UserError
from maxk.resources import gpus

UUIDS = ["GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of four GPUs; its folder of locks."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nprintf '%s\\n' " + " ".join(UUIDS) + "\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setattr(gpus, "LOCKS", tmp_path / "locks")
    monkeypatch.setattr(gpus, "_found_by_torch", lambda: len(UUIDS))
    return tmp_path / "locks"


class Job:
    """A process that runs `code` with `gpus` at hand, says which devices it sees, and ends at the end of its input."""

    def __init__(self, locks: Path, code: str, devices: str | None = None) -> None:
        environment = dict(os.environ)
        if devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = devices
        lines = [
            "import os, sys, pathlib",
            "from maxk.resources import gpus",
            f"gpus.LOCKS, gpus._POLL_S = pathlib.Path({str(locks)!r}), 0.01",
            "gpus._found_by_torch = lambda: 4",
            code,
            "print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)",
            "sys.stdin.read()",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-c", "\n".join(lines)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def devices(self) -> str:
        """What the job holds; waits until it does."""
        return self.process.stdout.readline().strip()

    def waits(self) -> str:
        """What the job says while it waits."""
        return self.process.stderr.readline()

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def start(machine: Path) -> Iterator:
    jobs: list[Job] = []

    def _start(code: str, devices: str | None = None) -> Job:
        jobs.append(Job(machine, code, devices))
        return jobs[-1]

    yield _start
    for job in jobs:
        job.process.kill()
        job.process.communicate()


def test_jobs_side_by_side_share_no_gpu(start) -> None:
    jobs = [start("gpus.hold(1)") for _ in UUIDS]
    assert sorted(job.devices() for job in jobs) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_waits_and_goes_on_when_a_holder_ends(how: signal.Signals, start) -> None:
    first = start("gpus.hold(3)")
    assert first.devices() == "0,1,2"
    second = start("gpus.hold(2)")
    assert "waiting for 2 of 4 GPUs" in second.waits()
    first.process.send_signal(how)
    assert len(second.devices().split(",")) == 2


def test_a_job_that_needs_every_gpu_is_not_starved(start) -> None:
    first, second = start("gpus.hold(2)"), start("gpus.hold(1)")
    held = [first.devices(), second.devices()]
    assert sorted(",".join(held)) == sorted("0,1,2")
    every = start("gpus.hold(4)")
    assert "waiting for 4 of 4 GPUs" in every.waits()
    late = start("gpus.hold(1)")  # one is free, but another job has waited longer
    first.end()
    second.end()
    assert every.devices() == "0,1,2,3"
    every.end()
    assert late.devices() == "0"


def test_jobs_that_need_a_quarter_share_a_gpu_and_no_more_than_four(start) -> None:
    jobs = [start("gpus.hold(1, 0.25)", devices="1") for _ in range(4)]
    assert [job.devices() for job in jobs] == ["1"] * 4
    fifth = start("gpus.hold(1, 0.25)", devices="1")
    assert "waiting for 25 % of 1 of 1 GPUs" in fifth.waits()
    jobs[2].end()
    assert fifth.devices() == "1"


def test_a_third_fits_three_times(start) -> None:
    jobs = [start(f"gpus.hold(1, {fraction})", devices="0") for fraction in (1 / 3, 0.333, 0.33)]
    assert [job.devices() for job in jobs] == ["0"] * 3


def test_jobs_with_fractions_take_empty_gpus_first(start) -> None:
    held = [start("gpus.hold(1, 0.5)").devices() for _ in range(4)]
    assert sorted(held) == ["0", "1", "2", "3"]
    assert start("gpus.hold(2, 0.5)").devices() == "0,1"


@pytest.mark.parametrize(("first", "second"), [("1, 0.25", "1"), ("1", "1, 0.25")])
def test_a_whole_gpu_is_not_shared(first: str, second: str, start) -> None:
    holder = start(f"gpus.hold({first})", devices="3")
    assert holder.devices() == "3"
    other = start(f"gpus.hold({second})", devices="3")
    assert "waiting" in other.waits()
    holder.end()
    assert other.devices() == "3"


def test_gpus_stay_held_through_exec(start) -> None:
    """torchrun takes the place of the process that took the GPUs."""
    become = "import sys, os; print('became', flush=True); sys.stdin.read()"
    launcher = start(f"gpus.hold(4); os.execv(sys.executable, ['python', '-c', {become!r}])")
    assert launcher.devices() == "became"
    other = start("gpus.hold(1)")
    assert "waiting" in other.waits()
    launcher.end()
    assert other.devices() == "0"


def test_narrowed_devices_are_respected_and_agree_with_other_names(start) -> None:
    narrowed = start("gpus.hold(1)", devices="2,3")
    assert narrowed.devices() == "2"
    by_uuid = start("gpus.hold(1)", devices="GPU-cc,GPU-dd")  # GPU-cc is 2, which is taken
    assert by_uuid.devices() == "GPU-dd"
    assert start("gpus.hold(2)").devices() == "0,1"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("1,0", {"1": "GPU-bbbb", "0": "GPU-aaaa"}),
        ("0,7,1", {"0": "GPU-aaaa"}),  # CUDA ignores what follows an unknown device
        ("-1", {}),
        ("", {}),
        ("MIG-1234", {"MIG-1234": "MIG-1234"}),
    ],
)
def test_visible_devices_are_read_as_cuda_does(
    names: str, expected: dict, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
    assert gpus.visible() == expected


def test_more_than_there_are_is_an_error_at_once(machine: Path) -> None:
    with pytest.raises(UserError, match="gpus: 5 needed, but nvidia-smi shows 4"):
        gpus.hold(5)


def test_a_cpu_job_sees_no_gpu(machine: Path) -> None:
    gpus.hold(0)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert not machine.exists()


@pytest.mark.parametrize("shown", [True, False])
def test_a_job_whose_gpus_torch_cannot_use_does_not_run_on_the_cpu(
    shown: bool, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No GPU on the node, or a torch without CUDA."""
    monkeypatch.setattr(gpus, "_found_by_torch", lambda: 0)
    if not shown:
        monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UserError, match=r"gpus: 1 needed, but torch finds 0 on .*\(0: CPU only\)"):
        gpus.hold(1)


def test_gpus_that_only_torch_knows_are_left_as_they_are(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    gpus.hold(4)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_free_percents_need_not_be_next_to_each_other(start) -> None:
    """Two of three jobs end, the first and the last: what they held is enough for a larger one."""
    jobs = []
    for _ in range(3):
        jobs.append(start("gpus.hold(1, 0.3)", "0"))
        assert jobs[-1].devices() == "0"
    jobs[0].end()
    jobs[2].end()
    assert start("gpus.hold(1, 0.65)", "0").devices() == "0"


def test_other_users_can_lock_the_gpu_of_a_job_that_ended(machine: Path) -> None:
    """Whatever the umask of the first user."""
    before = os.umask(0o077)
    try:
        assert start_and_end(machine)
    finally:
        os.umask(before)
    assert machine.stat().st_mode & 0o777 == 0o777
    assert {path.stat().st_mode & 0o666 for path in machine.iterdir()} == {0o666}


def start_and_end(locks: Path) -> str:
    job = Job(locks, "gpus.hold(4)")
    devices = job.devices()
    job.end()
    return devices
