"""What `maxk plan` counts: checked by hand on small numbers, and printed for every configuration that is shipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from maxk import cli
from maxk import config as configuration
from maxk.artifacts import files
from maxk.artifacts.records import Problem, Provenance, Test
from maxk.config import Config
from maxk.errors import UserError
from maxk.reporting import plan
from maxk.reporting.plan import Profile, Rates
from maxk.resources import memory


@pytest.fixture(scope="module")
def rates(root: Path) -> Rates:
    return plan.read_rates(str(root / "config" / "rates.yaml"))


@pytest.fixture
def config(defaults: dict) -> Config:
    """Two policies and one dataset of 100 train and 10 test problems, 4 tests each."""
    pocket = {"source": "pocket", "transforms": [1], "open_operations": [1], "rare": 0, "readings": [1, 0, 0]}
    changes = {
        "name": "planned",
        "base": {"source": "hub", "model": "Qwen/Qwen2.5-Coder-7B-Instruct"},
        "datasets": {"d": {**pocket, "train": 100, "test": 10, "tests": 4}},
        "objectives": {"bon_offpolicy": {"type": "bon_offpolicy", "k": 2, "training": {"iterations": 3, "epochs": 2}}},
        "training": {"datasets": ["d"]},
        "sampling": {"shards": 2},
        "seeds": [0, 1],
    }
    return configuration.parse(configuration.overlay(defaults, changes))


def test_the_sums(config: Config, rates: Rates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    profile = rates.profiles["7b-h100"]
    rows = plan.plan(config, profile)
    train, sample, verify = (rows.loc[stage] for stage in ("train bon_offpolicy", "sample", "verify"))
    assert (train.jobs, train.samples, train.tests) == (2, 2 * 100 * 2 * 8, 2 * 100 * 2 * 8 * 4)
    assert (sample.jobs, sample.samples) == (3 * 2, 3 * 10 * 256)
    assert verify.tests == 3 * 10 * 256 * 4
    generated, trained = profile.generated_tokens_per_s.value, profile.trained_tokens_per_s.value
    prompt, completion = profile.prompt_tokens.value, profile.completion_tokens.value
    assert config.verification.workers == config.training.processes == 1
    waits = (
        1600 * 2 * 4 / profile.tests_per_s.value + 2 * profile.startup_s.value
    )  # while programs run, and at the start
    seconds = 3200 * completion / generated + 3200 * 3 * (prompt + completion) / trained + 2 * waits / 2
    assert train.device_hours == pytest.approx(seconds / 3600)
    assert train.hours == pytest.approx(train.device_hours / 2)
    assert sample.device_hours == pytest.approx((7680 * completion / generated + 6 * profile.startup_s.value) / 3600)
    assert verify.core_hours == pytest.approx(verify.tests / profile.tests_per_s.value / 3600)
    assert verify.hours == pytest.approx(verify.core_hours / 6)
    assert train.memory_gb == pytest.approx(memory.train(config, "bon_offpolicy") / 1000)
    assert train.disk_gb == pytest.approx(2 * profile.policy_gb.value)
    peak = plan.peak_disk_gb(config.model_copy(update={"gpus": 1}), rows, profile)
    assert peak == pytest.approx(train.disk_gb + sample.disk_gb + 3 * profile.checkpoint_gb.value)  # one at a time
    monkeypatch.setenv("COLUMNS", "200")
    [total] = [line for line in "\n".join(plan.lines(config, rates, "7b-h100", 1)).splitlines() if " total " in line]
    jobs, samples = 1 + 1 + train.jobs + sample.jobs + verify.jobs + 3, train.samples + sample.samples
    minutes = 60 * (train.device_hours + sample.device_hours)
    assert total.split()[:8] == ["total", f"{jobs:.0f}", "–", "–", "–", f"{minutes:.0f}", "min", f"{samples:,.0f}"]


def test_the_experiments_that_a_plan_leaves_out_are_named(defaults: dict, rates: Rates, root: Path) -> None:
    paper = configuration.parse(configuration.overlay(defaults, configuration.read_yaml(root / "config/paper.yaml")))
    said = "not in this plan: experiments k_sweep (add `--experiment NAME`)"
    assert said in list(plan.lines(paper, rates, "7b-h100", 1))
    assert "not in this plan" not in "\n".join(plan.lines(paper.restricted_to("k_sweep"), rates, "7b-h100", 1))


def test_processes_share_the_tokens_and_hold_their_gpus(defaults: dict, rates: Rates, root: Path) -> None:
    paper = configuration.parse(configuration.overlay(defaults, configuration.read_yaml(root / "config/paper.yaml")))
    row = plan.plan(paper, rates.profiles["7b-h100"]).loc["train grpo"]
    assert row.gpus == 8
    assert row.device_hours == pytest.approx(8 * row.hours)


ROUND = {
    "generated_tokens_per_s": 100, "trained_tokens_per_s": 200, "tests_per_s": 10, "prompt_tokens": 10,
    "completion_tokens": 20, "bytes_per_token": 1, "startup_s": 100, "policy_gb": 1, "checkpoint_gb": 1,
}  # fmt: skip


def profile(**more: float) -> Profile:
    """One GPU with round rates."""
    rates = {key: {"value": value, "unit": "-", "from": "-"} for key, value in {**ROUND, **more}.items()}
    return Profile.model_validate({"bases": [], "devices": 1, **rates})


def shared(config: Config, gpus: int) -> Config:
    """Two trainings and six sampling jobs, of which two and three fit on a GPU."""
    training = config.training.model_copy(update={"gpu": 0.38})
    sampling = config.sampling.model_copy(update={"gpu": 0.3})
    return config.model_copy(update={"gpus": gpus, "training": training, "sampling": sampling})


@pytest.mark.parametrize(
    ("gpus", "trainings", "sampling"),
    [(1, 1, 2), (2, 0, 2), (3, 0, 1), (6, 0, 0)],  # others on a job's GPU
)
def test_jobs_that_share_a_gpu_take_longer_and_count_their_fraction(
    config: Config, gpus: int, trainings: int, sampling: int
) -> None:
    """A training generates 32,000 tokens in 320 s, trains on 3 × 48,000 in 720 s, and grades 6,400 tests in 640 s."""
    rows = plan.plan(shared(config, gpus), profile(training_neighbour=0.25, sampling_neighbour=0.5))
    train, sample = rows.loc["train bon_offpolicy"], rows.loc["sample"]
    assert (train.gpus, sample.gpus) == (0.38, 0.3)
    seconds = 100 + (320 + 720) * (1 + 0.25 * trainings) + 640
    assert train.hours * 3600 == pytest.approx(seconds)
    assert train.device_hours * 3600 == pytest.approx(2 * 0.38 * seconds)
    seconds = 100 + 256 * (1 + 0.5 * sampling)  # 7,680 × 20 tokens in six jobs
    assert sample.hours * 3600 == pytest.approx(seconds)
    assert sample.device_hours * 3600 == pytest.approx(6 * 0.3 * seconds)


def test_sharing_gains_nothing_until_it_is_measured(config: Config) -> None:
    """Two jobs on a GPU take twice as long, three three times."""
    rows = plan.plan(shared(config, 1), profile())
    assert rows.hours["train bon_offpolicy"] * 3600 == pytest.approx(100 + 2 * (320 + 720) + 640)
    assert rows.hours["sample"] * 3600 == pytest.approx(100 + 3 * 256)


@pytest.mark.parametrize(
    ("cores", "on_cores", "in_turn"),
    [
        (4, (2 * 640 + 3072) / 4, 2040 + 6 * 0.3 * 612 + 3072 / 4),  # the GPU is busy longest; one training, all else
        (1, 2 * 640 + 3072, 2040 + 6 * 0.3 * 612 + 3072),  # the core
        (64, (2 * 640 + 3072) / 64, 2040 + 6 * 0.3 * 612 + 512),  # one job of grading at least
    ],
)
def test_wall_time_is_that_of_the_busiest_or_of_stages_in_turn(
    config: Config, cores: int, on_cores: float, in_turn: float
) -> None:
    """Two trainings of 2,040 s, six sampling jobs of 612 s, grading of 3,072 core-seconds in six jobs of one core."""
    known, shares = profile(training_neighbour=0.25, sampling_neighbour=0.5), shared(config, 1)
    found = plan.wall_hours(shares, plan.plan(shares, known), known, cores)
    on_gpu = 2 * 0.38 * 2040 + 6 * 0.3 * 612
    assert found == pytest.approx((on_gpu / 3600, on_cores / 3600, in_turn / 3600))
    shown = f"at least {max(on_gpu, on_cores) / 60:.0f} min (busy: 1 GPU {on_gpu / 60:.0f} min, {cores} core"
    rates = Rates(profiles={"x": known})
    assert any(line.startswith(shown) for line in plan.lines(shares, rates, "x", cores))
    here = "\n".join(plan.lines(shares, rates, "x", cores, here=True))
    assert f", this machine's {cores} core" in here
    assert "for another machine than this one, give its number of cores: `--cores N`" in here


def test_checkpoints_of_trainings_that_fit_at_once(config: Config) -> None:
    """Two of 0.38 fit on each of two GPUs, a third on neither: four of six."""
    six = shared(config, 2).model_copy(update={"seeds": [0, 1, 2, 3, 4, 5]})
    rows = plan.plan(six, profile())
    assert plan.peak_disk_gb(six, rows, profile()) - rows.disk_gb.sum() == pytest.approx(3 * 4)


# Wall time, in minutes, of runs that are described in benchmarks/README.md, "Two GPUs".
FOUR = ["grpo", "bon_mean", "bon_loo1", "grpo_entropy"]
MEASURED = {
    "four on-policy": (24.2, FOUR, 0.38, {"gpu": 0.12, "shards": 4}),
    "two off-policy": (23.6, ["bon_offpolicy", "bon_offpolicy_loo2"], 0.24, {"shards": 8}),
}


@pytest.mark.parametrize("run", MEASURED)
def test_measured_runs_are_predicted_within_a_quarter(defaults: dict, rates: Rates, root: Path, run: str) -> None:
    minutes, policies, training, sampling = MEASURED[run]
    mini = configuration.read_yaml(root / "config/mini.yaml")
    changes = {
        **mini,
        "gpus": 2,
        "seeds": [0],
        "experiments": {},
        "objectives": {name: mini["objectives"][name] for name in policies},
        "training": {**mini["training"], "gpu": training},
        "sampling": {**mini["sampling"], **sampling},
        "verification": {**mini["verification"], "workers": 4},
    }
    config, known = configuration.parse(configuration.overlay(defaults, changes)), rates.profiles["0.5b-h200"]
    *busy, in_turn = (60 * hours for hours in plan.wall_hours(config, plan.plan(config, known), known, 32))
    assert max(busy) < minutes
    assert in_turn == pytest.approx(minutes, rel=0.25)


def test_work_without_gpus_is_core_hours(config: Config, rates: Rates) -> None:
    rows = plan.plan(config, rates.profiles["pocket-cpu"])
    assert (rows.device_hours == 0).all()
    assert (rows.core_hours[["train bon_offpolicy", "sample", "verify"]] > 0).all()


def test_prepared_problems_are_counted(
    config: Config, rates: Rates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan.count(config, "d", "test") == (10, 40, False)
    problems = [Problem(f"d/{i}", "d", "test", "x", [Test("1", "1")] * (i + 1)) for i in range(3)]
    files.write_problems(config.layout.problems("d"), problems, Provenance("prepare", "planned", {}))
    assert plan.count(config, "d", "test") == (3, 6, True)


@pytest.mark.parametrize("name", ["config", "mini", "paper"])
def test_every_shipped_configuration_has_a_plan(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    assert cli.main(["plan", "--config", f"config/{name}.yaml"]) == 0
    said = capsys.readouterr().out
    for part in ("train grpo ", "sample", "verify", "total", "CPU time", "generated_tokens_per_s"):
        assert part in said
    assert ("GPU time" in said) is (name != "config")  # it is for CPU cores


@pytest.mark.parametrize("name", ["config", "mini", "paper"])
def test_the_table_fits_a_terminal_of_80_columns(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In two parts, each of which names the stages."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["plan", "--config", f"config/{name}.yaml"]) == 0
    printed = capsys.readouterr().out
    table, _, _ = printed.partition("\nat least ")
    assert max(map(len, printed.splitlines())) <= 80  # the sources of rates too
    assert table.count("\n stage ") == table.count("\n verify ") == 2


@pytest.mark.parametrize("terminal", [False, True])
def test_a_table_in_a_file_or_a_pipe_is_plain_and_whole(
    terminal: bool, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also beside a terminal, as stdin and stderr of `maxk plan | grep` are, and where colours are asked for."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert cli.main(["plan", "--config", "config/paper.yaml"]) == 0
    table, _, text = capsys.readouterr().out.partition("\nat least ")
    assert ("\n  " in text) == terminal  # the continuation of a line
    assert "\x1b" not in table
    assert table.count("\n stage ") == table.count("\n verify ") == (2 if terminal else 1)


def test_an_experiment_is_planned(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The paper's k sweep: k = 1, 4, 16 and 64 with n = 64 completions, eight times the samples of the main tables."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "200")
    paper = configuration.experiment("config/paper.yaml")
    sweep = paper.restricted_to("k_sweep")
    trained = {
        (1 if o.type == "grpo" else o.spec["k"], sweep.training_of(n).num_generations)
        for n, o in sweep.objectives.items()
    }
    assert trained == {(1, 64), (4, 64), (16, 64), (64, 64)}
    assert cli.main(["plan", "--config", "config/paper.yaml", "--experiment", "k_sweep"]) == 0
    [row] = [
        line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(" train bon_loo1_n64_k64 ")
    ]
    assert f"{8 * 2490 * 8:,}" in row
    assert cli.main(["plan", "--config", "config/paper.yaml", "--experiment", "sweep"]) == 2
    assert "no experiment 'sweep' (did you mean 'k_sweep'?); known: k_sweep" in capsys.readouterr().err


def test_an_unknown_base_or_profile_is_named(config: Config, rates: Rates) -> None:
    assert plan.choose(rates, config, None) == "7b-h100"
    assert plan.choose(rates, config, "pocket-cpu") == "pocket-cpu"
    with pytest.raises(UserError, match=r"no profile 'tpu'; name one by --profile \(pocket-cpu, 0\.5b-h200, 7b-h100\)"):
        plan.choose(rates, config, "tpu")
    other = config.model_copy(update={"base": configuration.HubBase(source="hub", model="org/model")})
    with pytest.raises(UserError, match="no profile for the base model org/model"):
        plan.choose(rates, other, None)


def test_a_fault_in_the_rates_is_named(root: Path, tmp_path: Path) -> None:
    text = (root / "config" / "rates.yaml").read_text().replace("value: 11400", "value: 0", 1)
    path = tmp_path / "rates.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"rates\.yaml: profiles\.pocket-cpu\.tests_per_s\.value: .* got 0"):
        plan.read_rates(str(path))
