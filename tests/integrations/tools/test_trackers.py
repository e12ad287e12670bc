"""Weights & Biases and trackio themselves: the seconds-scale training logs to both, without a network."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from wandb.proto import wandb_internal_pb2

import pipeline
from maxk.tracking import reporters

POLICY = f"{pipeline.RESULTS}/policies/grpo/seed0"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment with one trained policy."""
    folder = tmp_path_factory.mktemp("tracked")
    settings = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(folder / "trackio"), "HOME": str(folder)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setitem(pipeline.ENVIRONMENT, name, value)
        trackers = 'tracking={"report_to": ["wandb", "trackio"]}'
        done = pipeline.snakemake(folder, "--config", trackers, "--", f"{POLICY}/policy.json")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def rewards(folder: Path) -> list[float]:
    """The mean reward of every step, from the policy's own log."""
    lines = (folder / POLICY / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line)["reward"] for line in lines]
    assert len(found) == 4
    return found


def records(path: Path) -> Iterator[wandb_internal_pb2.Record]:
    """The records of an offline run: a LevelDB log of protocol buffers, in blocks of 32 KiB, after a header."""
    data, at, message = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # the rest of a block, too short for the header of a chunk
            at += 32768 - at % 32768
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        message += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last chunk
            yield wandb_internal_pb2.Record.FromString(message)
            message = b""


def test_wandb_has_the_metrics_of_every_step(trained: Path) -> None:
    [file] = trained.glob(f"{pipeline.RESULTS}/wandb/offline-run-*/*.wandb")
    found = list(records(file))
    [run] = [record.run for record in found if record.HasField("run")]
    assert (run.project, run.display_name) == ("maxk-seconds", "grpo/seed0")
    entries = [
        {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in found
        if record.HasField("history")
    ]
    assert [entry["train/reward"] for entry in entries if "train/reward" in entry] == rewards(trained)
    assert [record.exit.exit_code for record in found if record.HasField("exit")] == [0]


def test_trackio_has_the_metrics_of_every_step(trained: Path) -> None:
    with sqlite3.connect(trained / "trackio" / "maxk-seconds.db") as database:
        rows = database.execute("SELECT run_name, metrics FROM metrics ORDER BY id").fetchall()
    assert {name for name, _ in rows} == {"grpo/seed0"}
    entries = [json.loads(metrics) for _, metrics in rows]
    assert [entry["train/reward"] for entry in entries if "train/reward" in entry] == rewards(trained)


def test_wandb_needs_credentials_or_offline_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import wandb

    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    try:
        assert reporters.fault("wandb")[0] == "wandb has no credentials"
        wandb.teardown()
        monkeypatch.setenv("WANDB_MODE", "offline")
        assert reporters.fault("wandb") is None
    finally:
        wandb.teardown()
