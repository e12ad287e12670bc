"""Milestones of a training through the real command line: kept, evaluated as policies of their own, compared."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from maxk.artifacts import files
from pipeline import RESULTS, maxk, planned, snakemake

EXPERIMENT = {"question": "Less trained?", "policies": ["grpo"], "reference": "grpo", "milestones": 2}


def test_milestones_are_part_of_the_graph(finished: Path) -> None:
    """The training is repeated, since the first kept no milestone; its end and its milestone are evaluated."""
    experiments = "experiments={matched: " + json.dumps(EXPERIMENT) + "}"
    done = snakemake(finished, "--dry-run", "--config", experiments, "--", f"{RESULTS}/experiments/matched.csv")
    jobs = planned(done)
    assert {rule: jobs.get(rule) for rule in ("train", "sample", "verify", "score", "experiment")} == {
        "train": 1,
        "sample": 2,
        "verify": 2,
        "score": 2,
        "experiment": 1,
    }


@pytest.mark.slow
def test_a_milestone_is_a_policy_of_its_own(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder, symlinks=True)
    path = folder / RESULTS / "config.json"
    config = json.loads(path.read_text())
    config["experiments"] = {"matched": EXPERIMENT}
    path.write_text(json.dumps(config))
    before = files.read_policy(folder / RESULTS / "policies/grpo/seed0/policy.json")
    steps = [["train", "grpo", "--seed", "0"], *([stage, "grpo@1/seed0"] for stage in ("sample", "verify", "score"))]
    for step in (*steps, ["experiment", "matched"]):
        done = maxk(folder, *step)
        assert done.returncode == 0, done.stderr
    end = files.read_policy(folder / RESULTS / "policies/grpo/seed0/policy.json")
    milestone = files.read_policy(folder / RESULTS / "policies/grpo@1/seed0/policy.json")
    assert end.lineage == before.lineage
    assert milestone.lineage == {**end.lineage, "batches": 2}  # of four
    weights = [files.digest(folder / one.model / "model.safetensors") for one in (milestone, end)]
    assert weights[0] != weights[1]
    with (folder / RESULTS / "experiments/matched.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["at"], row["batches"]) for row in rows[:2]] == [("milestone 1", "2"), ("end", "4")]
    assert [row["at"] for row in rows[2:]] == ["equal KL", "equal tokens"]
    assert rows[1]["max@16"] == rows[3]["max@16"]  # one policy: the tokens that all reach are those of its end
    shutil.rmtree(folder / RESULTS / "policies/grpo@1")
    assert maxk(folder, "train", "grpo", "--seed", "0").returncode == 0
    assert files.read_policy(folder / RESULTS / "policies/grpo@1/seed0/policy.json") == milestone
