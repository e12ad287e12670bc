"""Every file that was made from scores has a record of its own, and says whether it belongs to the scores there are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from made_up import Experiment, write_statistics

from maxk.artifacts import files
from maxk.artifacts.digests import digest_of
from maxk.artifacts.paths import Layout
from maxk.reporting import estimates, written
from maxk.reporting.load import load


def test_many_writers_lose_no_record_and_wait_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also on a file system without locks, where a lock does nothing."""
    monkeypatch.setattr(files, "flock", lambda handle, how: None)
    layout = Layout(str(tmp_path))
    paths = [layout.table(f"table{number}") for number in range(60)]
    for path in paths:
        Path(path).write_text(path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: written.record(layout, [path], "some scores"), paths))
    assert written.faults(layout, paths, "some scores") == {}
    assert written.faults(layout, paths, "others") == {"made from other scores": paths}
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe a b", b"{}\n"], ids=["empty", "list", "bytes", "object"])
def test_a_damaged_record_is_a_file_that_is_not_as_written(content: bytes, small: Experiment) -> None:
    write_statistics(small)
    path = small.config.layout.table("statistics")
    Path(small.config.layout.written(path)).write_bytes(content)
    found = written.faults(small.config.layout, [path], load(small.config).digest)
    assert found == {"not as written (cut short, edited, or by another version)": [path]}
    write_statistics(small)
    estimates.read(load(small.config), small.config)


def test_the_digest_is_that_of_the_score_files_that_there_are(small: Experiment) -> None:
    Path(small.config.layout.scores("bon_mean/seed0", "hard")).unlink()
    found = {
        path: files.digest(path)
        for policy, dataset in (("base", "easy"), ("base", "hard"), ("grpo/seed0", "easy"), ("grpo/seed0", "hard"))
        for path in [f"results/scores/{policy}/{dataset}.parquet"]
    } | {"results/scores/bon_mean/seed0/easy.parquet": files.digest("results/scores/bon_mean/seed0/easy.parquet")}
    assert load(small.config).digest == written.digest_of_scores(small.config) == digest_of(found)
