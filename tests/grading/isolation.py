"""Starting a Python of this environment in process namespaces of its own, as root or as a normal user."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

NOBODY = 65534
ROOT = Path(__file__).parents[2]
IS_ROOT = os.geteuid() == 0
USERS = ["root", "nobody"] if IS_ROOT else ["me"]


def run(arguments: list[str], user: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Runs `python arguments…` where a kill of everything stays inside; `user` is one of USERS."""
    command = [sys._base_executable, "-s", "-B", *arguments]
    if user == "nobody":
        inner = " && ".join(
            [*_opened(), shlex.join(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command])]
        )
        command = ["sh", "-c", inner]
    namespaces = ["--mount"] if IS_ROOT else ["--user", "--map-root-user"]
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *(path for path in sys.path if "site-packages" in path)]),
        "PATH": os.pathsep.join(["/usr/sbin:/usr/bin:/sbin:/bin", *_folder_of("bwrap")]),
        "LANG": "C.UTF-8",
    }
    return subprocess.run(
        ["unshare", *namespaces, "--pid", "--fork", "--mount-proc", "--kill-child", *command],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        check=False,
    )


def _folder_of(program: str) -> list[str]:
    found = shutil.which(program)
    return [str(Path(found).parent)] if found else []


def _opened() -> list[str]:
    """Shell commands that, in a private mount namespace, let everybody reach the interpreter and this repository."""
    needed = [Path(os.path.realpath(p)) for p in (sys.base_prefix, sys.prefix, ROOT)]
    closed = {
        parent: [path for path in needed if parent in path.parents]
        for path in needed
        for parent in path.parents
        if not parent.stat().st_mode & 0o001
    }
    commands = ["mount -t tmpfs -o mode=755 tmpfs /mnt"]
    for parent, paths in closed.items():
        for number, path in enumerate(paths):
            commands += [f"mkdir -p /mnt/{number}", f"mount --bind {path} /mnt/{number}"]
        commands.append(f"mount -t tmpfs -o mode=755 tmpfs {parent}")
        for number, path in enumerate(paths):
            commands += [f"mkdir -p {path}", f"mount --bind /mnt/{number} {path}"]
    return commands
