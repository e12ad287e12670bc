"""Files are whole or absent, say what made them, and are refused by name when damaged."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maxk.artifacts import files, models, records
from maxk.artifacts.digests import digest_of
from maxk.artifacts.records import Policy, Problem, Provenance, Task, Test
from maxk.errors import UserError

SOURCE = Provenance("prepare", "default", {"dataset": {"seed": 0}}, {"raw": "abc"})
PROBLEMS = [
    Problem("a/1", "a", "train", "add", [Test("1 2\n", "3\n"), Test("", "é\r\n")], reference="print(3)"),
    Problem("a/2", "a", "test", "mul", [Test("2", "4")], time_limit_s=1.5, memory_limit_mb=64, checker="x"),
]


def test_problems_survive_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "problems.parquet"
    files.write_problems(path, PROBLEMS, SOURCE)
    assert files.read_problems(path, "train") == PROBLEMS[:1]
    assert files.read_problems(path, "test") == PROBLEMS[1:]
    assert files.read_provenance(path) == SOURCE


def test_a_missing_file_of_a_run_names_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for root, command in (
        ("results", "snakemake --cores all"),
        ("results/mine", "snakemake --configfile results/mine/config.json --cores all"),
    ):
        files.write_json(f"{root}/config.json", {})
        path = f"{root}/policies/base/policy.json"
        with pytest.raises(UserError) as caught:
            files.read_policy(path)
        assert str(caught.value) == f"{path}: no such file; make it: `{command} {path}`"
    with pytest.raises(UserError, match=r"elsewhere/problems.parquet: no such file; check the path$"):
        files.read_tasks("elsewhere/problems.parquet", "test")


def test_large_tests_are_written_in_groups_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_GROUP_SIZE", 10)
    problems = [Problem(f"a/{i}", "a", "test", "add", [Test("12345", "")]) for i in range(5)]
    files.write_problems(tmp_path / "p", [*problems, *PROBLEMS], SOURCE)
    assert pq.ParquetFile(tmp_path / "p").num_row_groups == 5
    assert files.read_problems(tmp_path / "p", "test") == [*problems, PROBLEMS[1]]
    assert files.read_problems(tmp_path / "p", "test", slice(1, None, 3)) == [problems[1], problems[4]]
    assert files.read_problems(tmp_path / "p", "train") == PROBLEMS[:1]


def test_no_test_is_read_where_tasks_or_other_rows_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_GROUP_SIZE", 1)
    files.write_problems(tmp_path / "p", PROBLEMS, SOURCE)
    read, read_row_group = [], pq.ParquetFile.read_row_group

    def recorded(file: pq.ParquetFile, number: int, columns: list[str]) -> pa.Table:
        read.append((number, "tests" in columns))
        return read_row_group(file, number, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", recorded)
    assert files.read_tasks(tmp_path / "p", "test") == [Task("a/2", "a", "test", "mul")]
    assert not any(tests for _, tests in read)
    files.read_problems(tmp_path / "p", "test")
    assert [number for number, tests in read if tests] == [1]


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        files.write_problems(tmp_path / name, PROBLEMS, SOURCE)
    assert files.digest(tmp_path / "one") == files.digest(tmp_path / "two")


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    files.write_problems(tmp_path / "p", PROBLEMS[:1], SOURCE)
    with pytest.raises(UserError, match="no problem of split 'test'"):
        files.read_problems(tmp_path / "p", "test")


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    files.write_text(path, "old")
    with pytest.raises(RuntimeError), files.atomic(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"table\.csv: cannot be written \(No space left"),
        files.atomic(tmp_path / "table.csv"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(UserError, match="cannot be written"):
        files.write_text(tmp_path / "results" / "table.csv", "x")


@pytest.mark.parametrize("cut", [0, 10, 200, -4])
def test_a_half_written_parquet_is_refused(cut: int, tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    files.write_problems(whole, PROBLEMS, SOURCE)
    half = tmp_path / "half.parquet"
    half.write_bytes(whole.read_bytes()[:cut])
    with pytest.raises(UserError, match=r"half\.parquet: not a complete parquet file.*delete the file and run again"):
        files.read_table(half, records.PROBLEM)


def test_absent_files_are_named(tmp_path: Path) -> None:
    for read in (lambda p: files.read_table(p, records.SAMPLE), files.read_json, files.read_provenance):
        with pytest.raises(UserError, match=r"absent: no such file"):
            read(tmp_path / "absent")


def test_missing_and_mistyped_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"problem_id": ["a"]}), path)
    with pytest.raises(UserError, match=r"column 'sample_index' .* is missing"):
        files.read_table(path, records.SAMPLE)
    pq.write_table(pa.table({"problem_id": [1]}), path)
    with pytest.raises(UserError, match="column 'problem_id' is int64, expected string"):
        files.read_table(path, records.SAMPLE)
    with pytest.raises(UserError, match="has no provenance"):
        files.read_provenance(path)


def test_policies_survive_a_round_trip(tmp_path: Path) -> None:
    policy = Policy("grpo/seed0", "GRPO", "model", None, {"seed": 0}, {"torch": "2"})
    files.write_policy(tmp_path / "policy.json", policy)
    assert files.read_policy(tmp_path / "policy.json") == policy
    files.write_json(tmp_path / "policy.json", {"nome": "x"})
    with pytest.raises(UserError, match="not a policy"):
        files.read_policy(tmp_path / "policy.json")


def test_digests_depend_on_content_only() -> None:
    assert digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})


def test_a_folder_is_locked_by_one_process_at_a_time_and_unlocked_by_a_kill(tmp_path: Path) -> None:
    code = (
        "import sys, time; from maxk.artifacts import files\n"
        "with files.lock(sys.argv[1]): print('held', flush=True); time.sleep(60)"
    )
    first, second = (
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    )
    ready, _, _ = select.select([first.stdout, second.stdout], [], [])
    holder, waiter = (first, second) if first.stdout in ready else (second, first)
    assert holder.stdout.readline() == b"held\n"
    assert b"waiting for another process that is using it" in waiter.stderr.readline()
    holder.kill()
    assert waiter.stdout.readline() == b"held\n"
    waiter.kill()
    for process in (first, second):
        process.communicate()


def test_a_lock_that_is_not_waited_for_is_one_line(tmp_path: Path) -> None:
    with files.lock(tmp_path), pytest.raises(UserError, match="another run is using it"):
        files.lock(tmp_path, wait=False)
    files.lock(tmp_path, wait=False).close()


def test_weights_are_read_once_and_again_after_any_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after an edit that keeps size and modification time, as `cp -p` and `touch -r` do."""
    read, original = [], files.digest
    monkeypatch.setattr(files, "digest", lambda path: read.append(Path(path).name) or original(path))
    model, known = tmp_path / "model", tmp_path / "cache" / "inputs.json"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"1")
    (model / "config.json").write_text("{}")
    first = models.digest(str(model), known)
    assert models.digest(str(model), known) == first
    assert sorted(read) == ["config.json", "model.safetensors"]
    weights, read[:] = model / "model.safetensors", []
    times = weights.stat()
    weights.write_bytes(b"2")
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = models.digest(str(model), known)
    assert read == ["model.safetensors"]
    assert first != second
    assert models.digest("org/model", known) is None
    model.rename(tmp_path / "moved")
    assert models.digest(str(tmp_path / "moved"), tmp_path / "other.json") == second


@pytest.mark.parametrize(
    "name", ["chat_template.jinja", "additional_chat_templates/tool.jinja", "merges.txt", "tokenizer.model"]
)
def test_a_model_is_also_its_template_and_vocabulary(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model" / name
    path.parent.mkdir(parents=True)
    (tmp_path / "model" / "model.safetensors").write_bytes(b"1")
    found = []
    for content in ("a", "b"):
        path.write_text(content)
        found.append(models.digest(str(tmp_path / "model"), tmp_path / "cache" / "inputs.json"))
    assert found[0] != found[1]


def test_files_of_one_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / split / "0.jsonl" for split in ("train", "test")]
    found = []
    for contents in ("ab", "ba", "aa"):
        for path, content in zip(paths, contents, strict=True):
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        found.append(files.digest_of_all(paths, tmp_path / "inputs.json"))
    assert len(set(found)) == 3
    assert files.digest_of_all(paths[::-1], tmp_path / "inputs.json") == found[-1]


def test_relative_and_absolute_paths_of_files_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset can name one file of each kind."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).write_text(name)
    absolute = [tmp_path / "a", tmp_path / "b"]
    mixed = files.digest_of_all(["a", tmp_path / "b"], "inputs.json")
    assert mixed == files.digest_of_all(absolute, "inputs.json")
