"""Which tier is taken where, and what is said where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import isolation
import pytest

from maxk.grading import Grader, SandboxUnavailable, probe, sandbox, seccomp

# Loads a filter that refuses some system calls to itself and all it starts, then says what `auto` makes of it.
REFUSING = """
import json, sys
import pyseccomp
from maxk.grading import Grader, SandboxUnavailable
refuse = sys.argv[1].split(",")
rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
if "userns" in refuse:
    rules.add_rule(pyseccomp.ERRNO(1), "unshare", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, 1 << 28, 1 << 28))
    rules.add_rule(pyseccomp.ERRNO(1), "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, 1 << 28, 1 << 28))
    rules.add_rule(pyseccomp.ERRNO(38), "clone3")
if "landlock" in refuse:
    rules.add_rule(pyseccomp.ERRNO(38), 444)
if "seccomp" in refuse:
    rules.add_rule(pyseccomp.ERRNO(22), "seccomp")
rules.load()
try:
    with Grader(workers=1) as grader:
        grader.canary()
        print(json.dumps([grader.tier, grader.tier_reasons]))
except SandboxUnavailable as error:
    print(json.dumps(["none", str(error)]))
"""


def chosen(refuse: str, user: str) -> list:
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir="/tmp") as script:
        script.write(REFUSING)
        script.flush()
        Path(script.name).chmod(0o644)  # every user can read it
        done = isolation.run([script.name, refuse], user)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("user", isolation.USERS)
def test_the_strongest_tier_is_taken(user: str) -> None:
    tier, reasons = chosen("nothing", user)
    assert (tier, reasons) == ("bubblewrap", {"bubblewrap": "in use"})


@pytest.mark.parametrize("user", isolation.USERS)
def test_landlock_in_a_container_that_forbids_user_namespaces(user: str) -> None:
    tier, reasons = chosen("userns", user)
    assert tier == "landlock"
    assert "bwrap" in reasons["bubblewrap"]


@pytest.mark.parametrize("user", isolation.USERS)
def test_seccomp_where_there_is_no_landlock_either(user: str) -> None:
    tier, reasons = chosen("userns,landlock", user)
    assert tier == "seccomp"
    assert "Landlock" in reasons["landlock"]


@pytest.mark.parametrize("user", isolation.USERS)
def test_an_error_that_says_what_to_do_where_nothing_works(user: str) -> None:
    tier, message = chosen("userns,landlock,seccomp", user)
    assert tier == "none"
    for word in ("bubblewrap:", "landlock:", "seccomp:", "Install bubblewrap", "sandbox: off"):
        assert word in message
    assert "\n" not in message


def test_without_bubblewrap_the_next_tier_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with Grader(workers=1) as grader:
        assert grader.tier == "landlock"
        assert "not installed" in grader.tier_reasons["bubblewrap"]


def test_without_libseccomp_nothing_is_weakened_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    seccomp.server_filter.cache_clear()
    seccomp.child_filter.cache_clear()
    with pytest.raises(SandboxUnavailable), Grader(workers=1):
        pass
    with Grader(workers=1, sandbox="off") as grader:  # asked for by name
        assert grader.tier == "off"
        assert grader.grade([("print(1)", [("", "1")])])[0].reward == 1.0


@pytest.mark.parametrize("asked", ["auto", "bubblewrap", "landlock"])
def test_a_missing_package_is_told_once_and_alone(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install maxk` alone has no pyseccomp; with bubblewrap absent too, the package is what to install."""
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable) as error:
        Grader(sandbox=asked).__enter__()
    assert (
        str(error.value) == "needs the extra `grade` (no module 'pyseccomp'): pip install '.[grade]' in a clone of maxk"
    )


def test_a_tier_that_lets_an_attack_through_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = probe.Bait.judge
    calls = []

    def escaping(self: probe.Bait) -> None:
        calls.append(1)
        if len(calls) == 1:
            self._outputs[1] = b"escaped 6\n"
        judge(self)

    monkeypatch.setattr(probe.Bait, "judge", escaping)
    with Grader(workers=1) as grader:
        assert grader.tier == "landlock"
        assert "read a file" in grader.tier_reasons["bubblewrap"]


def test_the_probe_sees_what_no_sandbox_lets_through() -> None:
    with Grader(workers=1, sandbox="off") as grader, pytest.raises(probe.Escaped, match="read a file and write a file"):
        grader._servers.probe(grader._servers.running[0])


def test_a_named_tier_is_never_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    said = r"^this sandbox does not work here \(bubblewrap: the program bwrap is not installed\)\. Install bubblewrap"
    with pytest.raises(SandboxUnavailable, match=said), Grader(sandbox="bubblewrap"):
        pass


def test_filters_differ_by_tier_and_know_the_child() -> None:
    assert seccomp.server_filter(True) != seccomp.server_filter(False)
    assert seccomp.PID_PLACEHOLDER.to_bytes(4, "little") in seccomp.child_filter()


def test_address_space_is_found_as_the_kernel_counts_it() -> None:
    script = (
        "from maxk.grading.confined.confinement import address_space_in_use as f;"
        "n = f(); print(n, int(open('/proc/self/statm').read().split()[0]) * 4096)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    found, counted = map(int, done.stdout.split())
    assert abs(found - counted) <= 1 << 20


def test_only_what_the_interpreter_needs_can_be_read() -> None:
    readable = sandbox._readable(numpy=False)
    assert not {"/", "/etc", "/home", "/root", "/usr", "/tmp", str(Path.home())} & set(readable)


def test_importing_the_package_is_quick_and_brings_no_heavy_module() -> None:
    script = "import sys, maxk.grading; print([m for m in ('torch', 'pandas', 'numpy', 'mlflow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "[]"


def test_a_server_that_ended_before_it_was_spoken_to_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason once got lost in a broken pipe, whenever the machine was slow enough."""
    from maxk.grading import sandbox

    def late(*arguments: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sandbox, "_command", lambda *_: ["/bin/sh", "-c", "echo no user namespaces here >&2; exit 1"])
    monkeypatch.setattr(sandbox.ServerProcess, "send", late)
    with pytest.raises(sandbox.StartError, match="no user namespaces here"):
        sandbox.ServerProcess("landlock").wait_ready()
