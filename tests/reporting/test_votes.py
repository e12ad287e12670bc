"""maj@k of policies, read from the verdicts that were scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import Experiment, N

from maxk.artifacts import files, records
from maxk.artifacts.records import Provenance
from maxk.errors import UserError
from maxk.reporting import experiments, votes
from maxk.reporting.load import Scores, load

STUDY: dict[str, Any] = {
    "question": "Votes?",
    "policies": ["grpo", "bon_mean"],
    "reference": "grpo",
    "vote": N,
    "rules": [{"policy": "bon_mean", "vote": True, "then": "A better vote", "otherwise": "No better vote is shown"}],
}
# Per problem, samples that print the right answer and that agree on one wrong answer; all others differ.
GRPO = [(60, 40), (40, 60), (10, 0), (0, 128)]
BON_MEAN = [(128, 0), (70, 58), (2, 0), (30, 90)]


@pytest.fixture
def study(experiment: Callable[..., Experiment]) -> Experiment:
    made = experiment(experiments={"study": STUDY})
    for policy, problems in (("grpo/seed0", GRPO), ("bon_mean/seed0", BON_MEAN)):
        for dataset in ("easy", "hard"):
            score(made, policy, dataset, problems)
    return made


def score(made: Experiment, policy: str, dataset: str, problems: Sequence[tuple[int, int]]) -> None:
    rows = [
        (
            f"{dataset}-{number}",
            i,
            "fenced",
            ["passed" if i < right else "wrong_answer"],
            f"{i}",
            [answer(i, right, wrong)],
        )
        for number, (right, wrong) in enumerate(problems)
        for i in range(N)
    ]
    columns = dict(zip(records.VERDICT_AND_OUTPUTS.names, map(list, zip(*rows, strict=True)), strict=True))
    path = made.config.layout.verdicts(policy, dataset, 0)
    place = {"shard": 0, "shards": 1, "n": N}
    source = Provenance("verify", made.config.name, {}, environment=place)
    files.write_table(path, columns, records.VERDICT_AND_OUTPUTS, source)
    rewards = [[1.0] * right + [0.0] * (N - right) for right, _ in problems]
    made.score(policy, dataset, rewards, inputs={"verdicts/0": files.digest(path)})


def answer(i: int, right: int, wrong: int) -> str:
    return "right" if i < right else "wrong" if i < right + wrong else f"other {i}"


def test_the_vote_of_all_samples_is_the_most_frequent_answer(study: Experiment) -> None:
    found = votes.with_votes(study.config, load(study.config), N)
    for dataset in ("easy", "hard"):
        assert vote(found, "grpo", dataset) == [[1, 0, 1, 0]]
        assert vote(found, "bon_mean", dataset) == [[1, 1, 1, 0]]


def vote(scores: Scores, row: str, dataset: str) -> Any:
    values = scores.values(row, dataset, f"maj@{N}")
    return None if values is None else values.tolist()


def test_table_and_rules_hold_the_vote(study: Experiment) -> None:
    csv, text = (Path(path).read_text() for path in experiments.write("study", study.config)[:2])
    header, _, grpo, bon_mean = (line.split(",") for line in csv.splitlines())
    assert float(grpo[header.index(f"maj@{N}")]) == 0.5
    assert float(bon_mean[header.index(f"maj@{N}_difference")]) == pytest.approx(0.25)
    assert f"**No better vote is shown.** BoN mean − GRPO at maj@{N}: +0.250 \\[" in text


def test_without_verdicts_there_is_no_vote(study: Experiment) -> None:
    Path(study.config.layout.verdicts("grpo/seed0", "hard", 0)).unlink()
    found = votes.with_votes(study.config, load(study.config), N)
    assert [vote(found, row, "easy") for row in ("grpo", "bon_mean")] == [None, [[1, 1, 1, 0]]]
    assert "**Not decided: scores are missing.**" in Path(experiments.write("study", study.config)[1]).read_text()


def test_verdicts_that_were_not_scored_are_refused(study: Experiment) -> None:
    before = Path(study.config.layout.scores("grpo/seed0", "easy")).read_bytes()
    score(study, "grpo/seed0", "easy", BON_MEAN)
    Path(study.config.layout.scores("grpo/seed0", "easy")).write_bytes(before)
    with pytest.raises(UserError, match=r"made from another version of .*"):
        votes.with_votes(study.config, load(study.config), N)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vote": None}, "a rule with `vote` takes its k from the experiment's `vote`"),
        ({"choose": "learning_rate"}, "`vote` counts all problems; leave `choose` out"),
        ({"vote": 1000}, r"experiments\.study\.vote=1000 is more than sampling\.n=128"),
    ],
)
def test_contradictions_are_refused(
    experiment: Callable[..., Experiment], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        experiment(experiments={"study": {**STUDY, **changes}})


def test_the_third_best_of_five_is_the_chance_that_most_are_right() -> None:
    """Of eight samples of which five are right, by enumeration: what the objective `most_of_5` estimates."""
    import itertools

    import torch

    from maxk.objectives import make

    rewards = [1.0] * 5 + [0.0] * 3
    most = {s: float(sum(rewards[i] for i in s) >= 3) for s in itertools.combinations(range(8), 5)}
    with_0 = np.mean([value for s, value in most.items() if 0 in s])
    without_0 = np.mean([value for s, value in most.items() if 0 not in s])
    objective = make({"type": "order_statistic", "k": 5, "statistic": "rank", "m": 3, "binary": True})
    assert objective(torch.tensor([rewards]))[0, 0].item() == pytest.approx(5 / 8 * (with_0 - without_0), rel=1e-5)
