"""Every attack, in every tier, as root and as a normal user: nothing gets out, nobody's verdict changes."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from pathlib import Path

import isolation
import pytest

ATTACKS = sorted(path.stem for path in (Path(__file__).parent / "attacks").glob("a*.py"))
# Quick: only `auto`, in which a program that may not share a process runs as in `fork`. The rest are slow tests.
QUICK = [("bubblewrap", isolation.USERS[0], "auto"), ("landlock", isolation.USERS[-1], "auto")]
SLOW = [(tier, user, "fork", "auto") for tier in ("bubblewrap", "landlock", "seccomp") for user in isolation.USERS]

# Controls: what an honest program may do, with the output it must have.
HONEST = {
    "a20_exit0_right_output": "6\n",
    "a21_exit0_no_output": "",
    "a24_huge_stdin_unread": "ok\n",
    "a25_input_past_eof": "eof\n",
}
# The status an attack must end in, where its kind fixes one.
STATUSES = {
    "a04_tcp_loopback": "violation",
    "a05_udp_dns": "violation",
    "a07_fork_bomb": "violation",
    "a09_infinite_output": "output_limit",
    "a10_loop_ignore_signals": "time_limit",
    "a11_sleep_forever": "time_limit",
    "a14_kill_parent": "violation",
    "a15_ptrace_parent": "violation",
    "a17_daemon_outlive": "violation",
    "a27_exec_shell": "violation",
    "a37_io_uring": "violation",
    "a38_nested_namespaces": "violation",
    "a39_clone_namespaces": "violation",
    "a43_netlink": "violation",
    "a44_vsock": "violation",
    "a45_stop_oneself": "time_limit",
    "a47_stop_the_timer": "time_limit",
    "a48_fork_by_ctypes": "violation",
    "a52_i386_calls": "violation",
    "a53_x32_calls": "violation",
    "a55_child_of_the_server": "violation",
    "a56_signal_the_group": "violation",
    "a57_false_child_signal": "violation",
    "a60_shapes_of_the_output": "output_limit",
    "a66_wait_without_time": "time_limit",
    "a77_audit_hook_at_the_end": "runtime_error",
    "a78_spin_at_exit": "time_limit",
    "a82_large_pages_beyond_the_limit": "memory_limit",
    "a83_long_system_calls": "time_limit",
    "a84_long_copies_in_the_kernel": "runtime_error",
    "a85_leader_that_has_gone": "time_limit",
    "a87_timers_caught_in_c": "time_limit",
    "a91_keyring": "violation",
    "a92_page_faults_in_user_space": "violation",
    "a95_threads_that_fork": "violation",
    "a97_hoard_in_a_shared_process": "passed",
    "a98_callbacks_of_the_collector": "time_limit",
    "a100_storm_of_intervals": "time_limit",
    "a101_set_the_clock": "violation",
    "a105_many_buffers_in_one_read": "runtime_error",
    "a103_thread_that_stops_the_others": "time_limit",
}


@functools.cache
def outcome(tier: str, user: str, *modes: str) -> dict:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        if user == "nobody":
            shutil.chown(folder, isolation.NOBODY, isolation.NOBODY)
        driver = str(Path(__file__).with_name("attack_driver.py"))
        done = isolation.run([driver, tier, str(folder), *modes], user)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(
    params=[*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)],
    ids="-".join,
    scope="module",
)
def happened(request: pytest.FixtureRequest) -> dict:
    return outcome(*request.param)


def test_it_ran_where_it_was_meant_to(happened: dict, request: pytest.FixtureRequest) -> None:
    tier, user, *modes = request.node.callspec.params["happened"]
    assert happened["tier"] == tier
    assert (happened["uid"] == isolation.NOBODY) == (user == "nobody")
    assert {mode: sorted(found) for mode, found in happened["statuses"].items()} == dict.fromkeys(modes, ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_succeeds(happened: dict, attack: str) -> None:
    output = happened["outputs"].get(attack, "")
    assert "PWNED" not in output or attack == "a31_frame_walk", output
    assert "s3cret" not in output
    assert "EXPECTED-OUTPUT-MARKER" not in output
    if attack in HONEST:
        assert output == HONEST[attack]
    if attack in HONEST or attack in STATUSES:
        ended = {found[attack] for found in happened["statuses"].values()}
        assert ended == {STATUSES.get(attack, "passed")}


def test_expected_outputs_are_not_in_a_programs_memory(happened: dict) -> None:
    found = {name: happened["outputs"][name] for name in ("a23_parent_memory_outputs", "control")}
    hits = {name: int(output.rpartition("HITS ")[2]) for name, output in found.items()}
    assert hits["control"] >= 1  # the scan works: it finds the program's own constant
    assert hits["a23_parent_memory_outputs"] <= hits["control"]


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids="-".join)
def test_modes_agree(case: tuple[str, ...]) -> None:
    """But where one ran into its time limit: how far a program gets until then is the machine's affair."""
    ends_of = outcome(*case)["statuses"].values()
    found = {name: {statuses[name] for statuses in ends_of} for name in ATTACKS}
    assert {name: ends for name, ends in found.items() if len(ends) > 1 and "time_limit" not in ends} == {}


def test_nothing_outside_changed(happened: dict) -> None:
    assert happened["secret"] == "s3cret content"
    assert happened["outside"] == {"victim": "untouched"}
    assert happened["written"] == []
    assert happened["touched"] == []


def test_no_attack_uses_much_more_time_than_it_may(happened: dict) -> None:
    """Where a program stops its timer, the kernel ends it after three seconds (RLIMIT_CPU)."""
    assert {name: cpu_s for name, cpu_s in happened["cpu_s"].items() if max(cpu_s) > 4} == {}


def test_other_programs_are_not_disturbed(happened: dict) -> None:
    assert happened["honest"] == [1.0]
    assert happened["restarts"] == 0  # no attack even ended a server


def test_no_process_is_left(happened: dict) -> None:
    left = [name for name in happened["processes"] if name not in ("sh", "unshare", "setpriv")]
    assert len([name for name in left if name.startswith("python")]) == 1, left  # the driver itself
    assert not {"bwrap", "sbdaemon"} & set(left)
