"""Runs every attack in one tier and prints as JSON what happened; started by test_attacks.py in a process namespace.

    python attack_driver.py TIER FOLDER MODE …

FOLDER is a folder of this user's own, where the bait is laid. What no output can tell is looked at from outside:
files, connections, processes left over, the server's survival.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

from maxk.grading import Grader, Limits, Submission, Verdict

HERE = Path(__file__).parent


def listeners(touched: list[str]) -> list[socket.socket]:
    """Sockets an attack may reach; `touched` gets the name of each that was."""
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    local = socket.socket(socket.AF_UNIX)
    local.bind(f"\0maxk-attack-{tcp.getsockname()[1]}")
    local.listen()

    def watch(name: str, sock: socket.socket, take: str) -> None:
        try:
            getattr(sock, take)(*([64] if take == "recv" else []))
        except OSError:
            return
        touched.append(name)

    for name, sock, take in (("tcp", tcp, "accept"), ("udp", udp, "recv"), ("abstract", local, "accept")):
        threading.Thread(target=watch, args=(name, sock, take), daemon=True).start()
    return [tcp, udp, local]


def processes() -> list[str]:
    """Names of all living processes that can be seen (dead ones wait for this process, here pid 1, to reap them)."""
    names = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if rest.split()[0] != "Z":
            names.append(name)
    return names


MEMORY_SCAN = "a23_parent_memory_outputs"
PATIENT = {"a82_large_pages_beyond_the_limit"}  # whose memory takes a busy machine long to clear


def beside_others(grader: Grader, attacks: list[Submission]) -> tuple[list[Verdict], list[float]]:
    """The verdict of each attack, and the rewards of honest programs graded before, between and after them."""
    honest = [
        (f"{start}print('OUTPUT-OF-' + str('ANOTHER-PROGRAM'))  # {number}", [("", "OUTPUT-OF-ANOTHER-PROGRAM")])
        for number in range(len(attacks) + 1)
        for start in ("", "class Alone: pass\n")  # may share a process, may not
    ]
    items = [*honest[:2]]
    for number, attack in enumerate(attacks, start=1):
        items += [attack, *honest[2 * number : 2 * number + 2]]
    verdicts = grader.grade(items)
    return verdicts[2::3], [verdict.reward for at, verdict in enumerate(verdicts) if at % 3 != 2]


def prepared(source: str, bait: dict[str, Path], ports: list[str]) -> str:
    """An attack with the places of its bait and the ports of the listeners."""
    for name, value in {**bait, "HOME": Path.home()}.items():
        source = source.replace(f"@{name}@", str(value))
    source = source.replace("47111", ports[0]).replace("47112", ports[1])
    return source.replace("maxk-attack", f"maxk-attack-{ports[0]}")


def main(tier: str, folder: Path, *modes: str) -> dict:
    os.environ["SB_SECRET"] = "in the environment"
    secret, outside = folder / "secret.txt", folder / "outside"
    secret.write_text("s3cret content")
    outside.mkdir(mode=0o777)
    (outside / "victim").write_text("untouched")
    touched: list[str] = []
    sockets = listeners(touched)
    ports = [str(sock.getsockname()[1]) for sock in sockets[:2]]
    marker = "EXPECTED" + "-OUTPUT-MARKER-7391"
    attacks = sorted((HERE / "attacks").glob("a*.py"))
    limits = Limits(cpu_s=1.0, memory_mb=256, output_bytes=1 << 20, wall_s=1.2)
    patient = Limits(cpu_s=30.0, memory_mb=256, output_bytes=1 << 20, wall_s=60.0)
    outputs: dict[str, str] = {}
    items = []
    for path in attacks:
        source = prepared(path.read_text(), {"SECRET_FILE": secret, "OUTSIDE_DIR": outside}, ports)

        def see(stdin: str, expected: str, output: str, name: str = path.stem) -> bool:
            outputs[name] = output
            return True

        stdin = "3\n" * (1 << 20) if "huge_stdin" in path.stem else "3\n"
        items.append(Submission(source, [(stdin, marker)], patient if path.stem in PATIENT else limits, see))
        if path.stem == MEMORY_SCAN:  # what it finds where its marker is not expected: its own constant
            with Grader(workers=1, sandbox=tier, mode="fork") as grader:
                grader.grade([Submission(source, [(stdin, "something else")], limits, see)])
            outputs["control"] = outputs[MEMORY_SCAN]
    verdicts: dict[str, list[Verdict]] = {}
    rewards: set[float] = set()
    restarts = 0
    for mode in modes:
        with Grader(workers=2 if mode == "fork" else 1, sandbox=tier, mode=mode) as grader:
            verdicts[mode], honest = beside_others(grader, items)
            rewards |= set(honest)
            chosen, restarts = grader.tier, restarts + grader.stats.restarts
    time.sleep(0.3)
    for sock in sockets:
        sock.close()
    return {
        "tier": chosen,
        "uid": os.getuid(),
        "statuses": {
            mode: {path.stem: verdict.statuses[0] for path, verdict in zip(attacks, found, strict=True)}
            for mode, found in verdicts.items()
        },
        "cpu_s": {
            path.stem: [one for verdict in found for one in verdict.cpu_s]
            for path, *found in zip(attacks, *verdicts.values(), strict=True)
        },
        "outputs": {name: text[:2000] for name, text in outputs.items()},
        "secret": secret.read_text(),
        "outside": {path.name: path.read_text()[:100] for path in outside.iterdir()},
        "written": [str(p) for b in ("/tmp", "/var/tmp", "/dev/shm") for p in Path(b).glob("*_pwn")],
        "touched": touched,
        "honest": sorted(rewards),
        "restarts": restarts,
        "processes": processes(),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])))
