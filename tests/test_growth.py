"""An evaluation that grows, shrinks or is killed draws only what is missing, and ends with the files of one go."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maxk import cli, sampling
from maxk import config as configuration
from maxk.artifacts import files, journal, records
from maxk.artifacts.journal import Journal
from maxk.artifacts.records import Policy, Provenance
from maxk.config import Config
from maxk.errors import UserError
from maxk.resources import gpus
from maxk.sampling.entropy import Entropies
from maxk.stages import sample

CONFIG = "results/seconds/config.json"
Batch = tuple[dict[str, list[Any]], journal.Environment]
SMALL = {"n": 8, "chunk": 4, "batch_tokens": 200}
KS = {"ks": [1, 2], "headline_k": 2}


@pytest.fixture
def evaluate(
    seconds: Config, base_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Callable[..., None]]:
    """`evaluate(folder, n=…, …)` writes a configuration into a new or old folder; what it returns runs stages there."""

    def configure(folder: str, datasets: dict[str, Any] | None = None, **changes: Any) -> Callable[..., None]:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        monkeypatch.chdir(place)
        own = {
            "base": {"source": "hub", "model": base_model},
            "objectives": {},
            "sampling": {**SMALL, "shards": 1, **changes},
            "report": KS,
            "tracking": {"enabled": False},
            **({"datasets": datasets} if datasets else {}),
        }
        config = configuration.parse(configuration.overlay(seconds.model_dump(mode="json"), own))
        files.write_json(CONFIG, config.model_dump(mode="json"))
        fresh = not Path(config.layout.policy("base")).exists()

        def run(*stages: str) -> None:
            monkeypatch.chdir(place)
            for stage in stages:
                assert cli.main([*stage.split(), "--config", CONFIG]) == 0, stage

        run(*(f"prepare {name}" for name in config.datasets), *(["base"] if fresh else []))
        return run

    return configure


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the number of samples that each sampling job asks of the model."""
    original, counts = sampling.requests, []

    def counted(*args: Any) -> list[sampling.Request]:
        made = original(*args)
        counts.append(sum(request.count for request in made))
        return made

    monkeypatch.setattr(sampling, "requests", counted)
    return counts


ALL = ("sample base", "verify base", "score base")
PROBLEMS = 5  # test problems of the seconds-scale experiment


def made(folder: Path) -> dict[str, bytes]:
    """Samples, prompts, verdicts and scores."""
    root = folder / "results/seconds"
    paths = [path for kind in ("samples", "verdicts", "scores") for path in (root / kind).rglob("*.parquet")]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the number of GPUs that each sampling job locks."""
    counts: list[int] = []
    monkeypatch.setattr(gpus, "hold", lambda count, fraction: counts.append(count))
    return counts


@pytest.mark.parametrize(("before", "after", "drawn"), [(4, 8, 4), (8, 8, 0), (8, 4, 0)])
def test_another_n_draws_what_is_missing(
    before: int, after: int, drawn: int, evaluate: Any, requested: list[int], tmp_path: Path
) -> None:
    evaluate("grown", n=before)(*ALL)
    evaluate("grown", n=after)(*ALL)
    assert requested == [before * PROBLEMS, drawn * PROBLEMS]
    evaluate("at_once", n=after)(*ALL)
    assert made(tmp_path / "grown") == made(tmp_path / "at_once")
    assert len(made(tmp_path / "grown")) == 8


def test_an_n_that_ends_within_a_chunk_draws_the_same(evaluate: Any, requested: list[int], tmp_path: Path) -> None:
    """Other batches may round entropies otherwise; the texts are the same."""
    evaluate("grown", n=3)("sample base")
    evaluate("grown", n=8)("sample base")
    assert requested == [3 * PROBLEMS, 5 * PROBLEMS]
    evaluate("at_once", n=8)("sample base")
    for dataset in ("pocket-contests", "pocket-short"):
        path = f"results/seconds/samples/base/{dataset}/0.parquet"
        grown, whole = (pq.read_table(tmp_path / folder / path) for folder in ("grown", "at_once"))
        assert grown.drop_columns("entropy") == whole.drop_columns("entropy")


def test_more_problems_and_other_shards_reuse_what_is_there(
    evaluate: Any, requested: list[int], seconds: Config
) -> None:
    fewer = {name: one.model_dump(mode="json") for name, one in seconds.datasets.items()}
    more = {**fewer, "pocket-short": {**fewer["pocket-short"], "test": 4}}
    evaluate("grown", fewer)("sample base")
    evaluate("grown", more, shards=2)("sample base --shard 0", "sample base --shard 1")
    assert requested == [8 * 5, *requested[1:]]
    assert sum(requested[1:]) == 8 * 2


def test_other_settings_reuse_nothing(evaluate: Any, requested: list[int]) -> None:
    evaluate("one")("sample base")
    evaluate("one", temperature=0.5)("sample base")
    evaluate("one")("sample base")  # back again: everything is there
    assert requested == [40, 40, 0]


def test_a_job_with_nothing_to_draw_waits_for_no_gpu(evaluate: Any, held: list[int], tmp_path: Path) -> None:
    evaluate("one", n=8)("sample base")
    first = made(tmp_path / "one")
    evaluate("one", n=8)("sample base")
    evaluate("one", n=4)("sample base")
    assert len(held) == 1
    evaluate("one", n=8)("sample base")
    assert len(held) == 1
    assert made(tmp_path / "one") == first
    evaluate("one", n=12)("sample base")
    assert len(held) == 2


def test_entropies_are_measured_of_finished_samples(
    evaluate: Any, requested: list[int], held: list[int], tmp_path: Path
) -> None:
    """Asked for later, they are, up to rounding, those measured while drawing; no sample is drawn again."""
    evaluate("later", entropy=False)("sample base")
    later, at_once = (
        tmp_path / folder / "results/seconds/samples/base/pocket-contests/0.parquet" for folder in ("later", "at_once")
    )
    assert pq.read_table(later).column("entropy").null_count == 8 * 3
    evaluate("later")("sample base")
    evaluate("at_once")("sample base")
    assert requested == [40, 0, 40]
    assert len(held) == 3
    one, two = pq.read_table(later), pq.read_table(at_once)
    assert one.drop_columns("entropy") == two.drop_columns("entropy")
    assert one.column("entropy").to_pylist() == pytest.approx(two.column("entropy").to_pylist(), rel=1e-5)
    measured, drawn = files.read_provenance(later), files.read_provenance(at_once)
    assert measured == dataclasses.replace(drawn, environment={**drawn.environment, "entropy": "cpu float32"})
    assert drawn.environment["entropy"] == "cpu float32, while drawing"


def test_entropies_of_both_ways_are_named_together(evaluate: Any, tmp_path: Path) -> None:
    evaluate("one", n=4, entropy=False)("sample base")
    evaluate("one", n=8)("sample base")
    found = files.read_provenance(tmp_path / "one/results/seconds/samples/base/pocket-contests/0.parquet")
    assert found.environment["entropy"] == "cpu float32 and cpu float32, while drawing"


def test_stopped_while_it_measures_it_goes_on(
    evaluate: Any, requested: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Entropies.__call__, []

    def twice(self: Entropies, given: Any) -> list[float]:
        calls.append(len(given))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, given)

    monkeypatch.setattr(Entropies, "__call__", twice)
    for folder in ("stopped", "whole"):
        evaluate(folder, entropy=False)("sample base")
    run = evaluate("stopped")
    with pytest.raises((KeyboardInterrupt, SystemExit, AssertionError)):
        run("sample base")
    assert len(calls) == 3
    run("sample base")
    evaluate("whole")("sample base")
    assert requested == [40, 40, 0, 0, 0]
    assert sum(calls) == 40 + calls[2] + 40
    assert made(tmp_path / "stopped") == made(tmp_path / "whole")


def test_entropies_that_nobody_asks_for_are_left_out(evaluate: Any, requested: list[int], tmp_path: Path) -> None:
    """They stay in the journal: asked for again, they are those measured while drawing."""
    evaluate("one")("sample base")
    whole, path = made(tmp_path / "one"), tmp_path / "one/results/seconds/samples/base/pocket-contests/0.parquet"
    evaluate("one", entropy=False)("sample base")
    assert pq.read_table(path).column("entropy").null_count == 8 * 3
    assert "entropy" not in files.read_provenance(path).environment
    evaluate("one")("sample base")
    assert made(tmp_path / "one") == whole
    assert requested == [8 * PROBLEMS, 0, 0]


def of_an_earlier_version(config: Config) -> tuple[list[Batch], list[Batch], Journal, Journal]:
    """Empties the journals; returns what they held as earlier versions wrote it: entropies apart from the samples."""
    drawn, measured = sample._journals(config, files.read_policy(config.layout.policy("base")))
    without = [name for name in records.DRAWN.names if name != "entropy"]
    samples, entropies = [], []
    for batch, made_with in drawn.read():
        way = made_with["entropy"]
        own = {key: value for key, value in made_with.items() if key != "entropy"}
        samples.append((batch.select(without).to_pydict(), own))
        entropies.append((batch.select(records.MEASURED.names).to_pydict(), {"entropy": way}))
    for path in drawn.folder.glob("*.arrow"):
        path.unlink()
    return samples, entropies, dataclasses.replace(drawn, schema=pa.schema(map(records.DRAWN.field, without))), measured


def samples_of(folder: Path) -> pa.Table:
    paths = sorted((folder / "results/seconds/samples").rglob("*.parquet"))
    return pa.concat_tables([pq.read_table(path) for path in paths if "prompts" not in str(path)])


def write(stored: Journal, *batches: Batch) -> None:
    """Appends each batch as a stream of its own."""
    for columns, made_with in batches:
        assert [*stored.record([columns], lambda made_with=made_with: made_with)] == [columns]


def test_samples_of_an_earlier_version_are_kept_with_their_entropies(
    evaluate: Any, requested: list[int], tmp_path: Path
) -> None:
    evaluate("old")("sample base")
    samples, entropies, drawn, measured = of_an_earlier_version(configuration.load(CONFIG))
    write(drawn, *samples)
    write(measured, *entropies)
    evaluate("old", n=12)("sample base")
    evaluate("whole", n=12)("sample base")
    assert requested == [8 * PROBLEMS, 4 * PROBLEMS, 12 * PROBLEMS]
    assert made(tmp_path / "old") == made(tmp_path / "whole")


@pytest.mark.parametrize("first", [True, False], ids=["measured while drawing", "measured afterwards"])
def test_an_entropy_that_an_earlier_version_left_is_not_taken_for_a_sample_that_is_drawn_again(
    first: bool, evaluate: Any, requested: list[int], tmp_path: Path
) -> None:
    """Those versions wrote the entropies of a batch before its samples, and a kill could come between."""
    evaluate("killed")("sample base")
    whole = samples_of(tmp_path / "killed")
    (*kept, lost), (*known, (last, way)), drawn, measured = of_an_earlier_version(configuration.load(CONFIG))
    write(drawn, *kept)
    write(measured, *known, ({**last, "entropy": [99.0] * len(last["entropy"])}, way))
    evaluate("killed", entropy=first)("sample base")
    for _ in range(2):  # the job that measures the entropies, and one that reads both
        evaluate("killed")("sample base")
        found = samples_of(tmp_path / "killed")
        assert found.drop_columns("entropy") == whole.drop_columns("entropy")
        assert found["entropy"].to_pylist() == pytest.approx(whole["entropy"].to_pylist(), rel=1e-5)
    assert requested == [8 * PROBLEMS, len(lost[0]["sample_index"]), 0, 0]


def test_samples_of_other_weights_are_not_taken(
    evaluate: Any, requested: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy that was trained again with the same settings, and a base model whose folder was overwritten."""
    run = evaluate("one")
    run("sample base")
    policy = tmp_path / "one/results/seconds/policies/base/policy.json"
    recorded = json.loads(policy.read_text())
    weights = shutil.copytree(recorded["model"], tmp_path / "other")
    (weights / "generation_config.json").write_text('{"max_length": 77}')

    policy.write_text(json.dumps({**recorded, "model": str(weights)}))
    assert cli.main(["sample", "base", "--config", CONFIG]) == 2
    assert "not the files that `maxk base` recorded" in capsys.readouterr().err

    lineage = {key: value for key, value in recorded["lineage"].items() if key != "weights"}  # as trained policies have
    policy.write_text(json.dumps({**recorded, "lineage": lineage}))
    run("sample base")
    policy.write_text(json.dumps({**recorded, "lineage": lineage, "model": str(weights)}))
    run("sample base")
    assert requested == [8 * PROBLEMS] * 3


def test_samples_of_another_machine_are_taken_if_its_numbers_have_the_same_type(seconds: Config) -> None:
    policy = Policy("base", "Base", "model")

    def place(gpus: int, **sampling: Any) -> Path:
        changed = seconds.model_copy(update={"gpus": gpus, "sampling": seconds.sampling.model_copy(update=sampling)})
        return sample._journals(changed, policy)[0].folder

    assert place(0) == place(0, shards=3) != place(1) == place(4)
    assert place(0, dtype="float32") == place(1, dtype="float32")


def test_another_prompt_is_drawn_anew(evaluate: Any, requested: list[int], tmp_path: Path) -> None:
    """A problem is known by its prompt, too: an edited statement under the same id."""
    run = evaluate("one")
    run("sample base")
    path = tmp_path / "one/results/seconds/data/pocket-short/problems.parquet"
    problems = [*files.read_problems(path, "test")]
    edited = [records.Problem(**{**vars(problems[0]), "statement": "halve, show"}), *problems[1:]]
    files.write_problems(path, edited, files.read_provenance(path))
    run("sample base")
    assert requested == [40, 8]


def test_grown_verdicts_run_only_new_programs(evaluate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from maxk.evaluation import problem_grader

    graders: list[Any] = []
    original = problem_grader.grader
    monkeypatch.setattr(problem_grader, "grader", lambda config: graders.append(original(config)) or graders[-1])
    evaluate("grown", n=4)("sample base", "verify base")
    evaluate("grown", n=8)("sample base", "verify base")
    first, second = (grader.stats for grader in graders)
    assert first.cached == 0
    assert second.cached >= first.programs > 0  # every program of before is known
    assert second.programs <= second.submissions - first.submissions


# ---------------------------------------------------------------------------------------------------------------- kills
@pytest.mark.slow
def test_killed_in_mid_shard_it_goes_on_and_ends_the_same(evaluate: Any, requested: list[int], tmp_path: Path) -> None:
    """kill -9 after some batches, again and again; a stream whose last batch is torn loses that batch only."""
    many = {"n": 32, "chunk": 4, "batch_tokens": 1}
    folder = tmp_path / "killed"
    evaluate("killed", **many)
    kept = [killed(folder) for _ in range(3)]
    [stream, *_] = sorted(streams(folder), key=lambda path: path.stat().st_mtime)
    stream.write_bytes(stream.read_bytes()[: stream.stat().st_size // 2])
    left = drawn_in(folder)
    evaluate("killed", **many)(*ALL)
    evaluate("at_once", **many)(*ALL)
    assert 0 < kept[0] < kept[1] < kept[2] < 32 * PROBLEMS
    assert left < kept[-1]
    assert requested == [32 * PROBLEMS - left, 32 * PROBLEMS]
    assert made(tmp_path / "killed") == made(tmp_path / "at_once")


def streams(folder: Path) -> list[Path]:
    """The streams of samples; those of entropies are a folder deeper."""
    return list((folder / "results/seconds/drawn/base").glob("*/*.arrow"))


def killed(folder: Path) -> int:
    """Kills a sampling job that has written a few batches; returns how many samples the journal has then."""
    before = {path: path.stat().st_size for path in streams(folder)}
    process = subprocess.Popen([sys.executable, "-m", "maxk", "sample", "base", "--config", CONFIG], cwd=folder)
    while sum(path.stat().st_size for path in streams(folder) if path not in before) < 3000:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "results/seconds/samples/base/pocket-short/0.parquet").exists()
    return drawn_in(folder)


def drawn_in(folder: Path) -> int:
    """Samples in whole batches of the journal."""
    return sum(batch.num_rows for path in streams(folder) for batch in journal._batches(path))


# ------------------------------------------------------------------------------------------------------------- honesty
def test_a_journal_of_other_settings_is_refused(
    evaluate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = evaluate("one", temperature=0.5)
    run("sample base")
    [foreign] = streams(tmp_path / "one")
    shutil.copytree(foreign.parent, tmp_path / "foreign")
    evaluate("two")("sample base")
    [own] = streams(tmp_path / "two")
    shutil.copy(foreign, own.parent / "foreign.arrow")
    assert cli.main(["sample", "base", "--config", CONFIG]) == 2
    said = capsys.readouterr().err
    assert "foreign.arrow and the configuration do not belong together: settings.sampling.temperature is 0.5" in said


def test_no_score_from_fewer_samples_than_asked(evaluate: Any, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate("one", n=4)("sample base", "verify base")
    evaluate("one", n=8)
    assert cli.main(["score", "base", "--config", CONFIG]) == 2
    assert "got 4 samples, expected 8" in capsys.readouterr().err
    evaluate("one", n=2)
    assert cli.main(["score", "base", "--config", CONFIG]) == 2
    assert "got index 2 among the samples, expected 0 … 1" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------- journals
SCHEMA = pa.schema([pa.field("x", pa.int64(), nullable=False)])
SOURCE = Provenance("sample", "e", {"temperature": 1.0}, {"policy": "p"})


def recorded(folder: Path, *parts: list[int], environment: str = "here") -> None:
    lines = Journal(folder, SCHEMA, SOURCE).record(({"x": part} for part in parts), lambda: {"host": environment})
    assert [line["x"] for line in lines] == [*parts]


def test_a_journal_is_read_up_to_every_torn_end(tmp_path: Path) -> None:
    recorded(tmp_path, [1, 2], [3], [4, 5, 6])
    [path] = tmp_path.glob("*.arrow")
    whole, lengths = path.read_bytes(), set()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        rows = [x for batch, _ in Journal(tmp_path, SCHEMA, SOURCE).read() for x in batch.to_pydict()["x"]]
        assert rows == [1, 2, 3, 4, 5, 6][: len(rows)]
        lengths.add(len(rows))
    assert lengths >= {0, 2, 3}


def test_streams_are_read_in_the_order_in_which_they_were_begun(tmp_path: Path) -> None:
    """So every job takes the same one of several rows about a sample."""
    for number in range(8):
        recorded(tmp_path, [number])
    rows = [x for batch, _ in Journal(tmp_path, SCHEMA, SOURCE).read() for x in batch.to_pydict()["x"]]
    assert rows == list(range(8))


def test_environments_are_kept_apart_and_named_together(tmp_path: Path) -> None:
    recorded(tmp_path, [1], environment="a")
    recorded(tmp_path, [2], environment="b")
    found = {batch.to_pydict()["x"][0]: made_with for batch, made_with in Journal(tmp_path, SCHEMA, SOURCE).read()}
    assert found == {1: {"host": "a"}, 2: {"host": "b"}}
    assert journal.common([{"host": "b", "n": 1.5}, {"host": "a", "n": 1.5}]) == {"host": "a and b", "n": 1.5}


def test_a_journal_of_other_columns_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path, [1])
    other = Journal(tmp_path, pa.schema([pa.field("y", pa.int64())]), SOURCE)
    with pytest.raises(UserError, match="its columns are not those of this version"):
        list(other.read())


def test_a_column_that_an_earlier_version_lacks_is_null(tmp_path: Path) -> None:
    recorded(tmp_path, [1, 2])
    grown = pa.schema([*SCHEMA, pa.field("y", pa.float32())])
    list(Journal(tmp_path, grown, SOURCE).record([{"x": [3], "y": [0.5]}], dict))
    batches = [batch for batch, _ in Journal(tmp_path, grown, SOURCE).read()]
    assert [batch.to_pydict() for batch in batches] == [{"x": [1, 2], "y": [None, None]}, {"x": [3], "y": [0.5]}]
    assert all(batch.schema.equals(grown) for batch in batches)
    required = Journal(tmp_path, pa.schema([*SCHEMA, pa.field("y", pa.float32(), nullable=False)]), SOURCE)
    with pytest.raises(UserError, match="its columns are not those of this version"):
        list(required.read())


def test_streams_of_two_journals_are_read_in_the_order_of_writing(tmp_path: Path) -> None:
    for number in range(6):
        recorded(tmp_path / "ab"[number % 2], [number])
    one, two = (Journal(tmp_path / name, SCHEMA, SOURCE) for name in "ab")
    read = [(stored, batch.to_pydict()["x"]) for stored, batch, _ in journal.in_order(two, one)]
    assert read == [(one, [0]), (two, [1]), (one, [2]), (two, [3]), (one, [4]), (two, [5])]
