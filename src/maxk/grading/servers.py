"""The fork servers of a grader: which tier they run on, and how they are started, replaced and ended."""

from __future__ import annotations

import time

from maxk.errors import UserError
from maxk.grading import probe, seccomp
from maxk.grading.connection import Server
from maxk.grading.sandbox import OFF, TIERS, SandboxUnavailable, StartError, low_limits
from maxk.grading.tasks import PLAIN


class Servers:
    """At most `workers` servers of each kind, on one tier.

    sandbox: the tier asked for, or "auto".
    reasons: for every tier that was tried, why it is not used, or "in use".
    """

    patience_s = 60.0  # a shortage of processes, memory or descriptors may last so long
    _pause_s = 1.0  # between two attempts to start a server

    def __init__(self, sandbox: str, workers: int) -> None:
        self._wanted, self.workers = sandbox, workers
        self.tier = ""
        self.reasons: dict[str, str] = {}
        self.running: list[Server] = []
        self._restart_at = self._failing_since = 0.0
        self.closed = True  # until a tier is chosen, and after `close`

    def busy(self) -> list[Server]:
        """Those that have jobs."""
        return [server for server in self.running if server.jobs]

    def choose_tier(self) -> None:
        """Takes the tier asked for, or the strongest that starts and withstands a probe. Raises SandboxUnavailable."""
        names = TIERS if self._wanted == "auto" else (self._wanted,)
        if self._wanted != OFF:
            _require_filters()
        for name in names:
            try:
                server = self._start(PLAIN, tier=name)
                self._adopt(server)
                if name != OFF:
                    self.probe(server)
            except (probe.Escaped, UserError, OSError) as error:
                self.reasons[name] = str(error)
                for server in list(self.running):
                    self.dismiss(server)
                continue
            self.tier = name
            self.reasons[name] = "in use"
            self.closed = False
            return
        raise SandboxUnavailable(_unavailable(self.reasons))

    def probe(self, server: Server) -> None:
        """Raises `probe.Escaped` if an attack succeeds there."""
        with probe.bait() as bait:
            server.send([bait.job()])
            while server.jobs:
                for run in server.receive().runs:
                    bait.add(run.test, run.output())
            bait.judge()

    def _start(self, kind: str, tier: str = "") -> Server:
        return Server(tier or self.tier, kind)

    def _adopt(self, server: Server) -> None:
        server.process.wait_ready()
        self.running.append(server)

    def dismiss(self, server: Server) -> None:
        """Ends a server, and all that it has started. `close` in another thread may have done so before."""
        try:
            self.running.remove(server)
        except ValueError:
            return
        server.process.close()

    def close(self) -> None:
        """Ends all servers, and whatever grades by them in another thread."""
        self.closed = True
        for server in list(self.running):
            self.dismiss(server)

    def of_kind(self, kind: str) -> list[Server]:
        """Servers for programs without numpy, with it, or for checkers; the latter two start when first needed.

        Checkers read expected outputs, so no program is ever forked from their servers. Servers that have ended are
        replaced here. If that fails, perhaps for lack of processes or memory, work goes on with the others, and the
        next attempt comes a little later. Raises StartError if there is no server for long.
        """
        pool = [server for server in self.running if server.kind == kind]
        if self.closed or len(pool) >= self.workers or time.monotonic() < self._restart_at:
            return pool
        fresh: list[Server] = []
        problem: Exception | None = None
        try:
            for _ in range(self.workers - len(pool)):
                fresh.append(self._start(kind))  # all at once, because each takes a while to start
        except OSError as error:
            problem = error
        for server in fresh:
            try:
                self._adopt(server)
            except StartError as error:
                problem = error
        pool = [server for server in self.running if server.kind == kind]
        self._note_start(problem, bool(pool))
        return pool

    def _note_start(self, problem: Exception | None, any_left: bool) -> None:
        now = time.monotonic()
        if problem is None:
            self._failing_since = 0.0
            return
        self._failing_since = self._failing_since or now
        self._restart_at = now + self._pause_s
        if not any_left and now - self._failing_since > self.patience_s:
            patience = f"{self.patience_s:.0f} s"
            raise StartError(
                f"no grading process could be started for {patience}: {problem}{low_limits()}"
            ) from problem


def _require_filters() -> None:
    """Raises SandboxUnavailable without libseccomp: the same would be wrong with every tier."""
    try:
        seccomp.library()
    except UserError as error:
        raise SandboxUnavailable(str(error)) from None


def _unavailable(reasons: dict[str, str]) -> str:
    said = "; ".join(f"{tier}: {reason}" for tier, reason in reasons.items())
    what = "no sandbox works here" if len(reasons) > 1 else "this sandbox does not work here"
    if low := low_limits():
        return f"{what} ({said}{low}): raise the limits of this shell"
    named = ", set sandbox: auto" if len(reasons) == 1 else ""
    return (
        f"{what} ({said}). Install bubblewrap and allow user namespaces, or use Linux 5.13 or newer with "
        f"Landlock{named}; to run untrusted programs without any isolation, set sandbox: off"
    )
