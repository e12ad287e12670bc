"""Numbers of tables and pages for readers: one minus sign everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from made_up import Experiment

from maxk import cli
from maxk.reporting import markdown, rendering

HYPHEN = re.compile(r"(?<![\w.])-\d")  # a negative number as Python prints it


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [(-0.25, "+.3f", "−0.250"), (0.25, "+.3f", "+0.250"), (-1, "g", "−1"), (1.2e-05, ".2g", "1.2e-05")],
)
def test_a_negative_number_has_a_minus_sign_and_no_hyphen(value: float, form: str, shown: str) -> None:
    assert markdown.number(value, form) == shown


def test_all_ends_of_an_interval_have_the_sign() -> None:
    assert markdown.with_ends(-0.2, -0.3, -0.1, "+.3f") == "−0.200 [−0.300, −0.100]"
    assert markdown.with_ends(-0.2, float("nan"), float("nan"), "+.3f") == "−0.200"


@pytest.mark.parametrize(
    ("level", "shown"), [(0.95, "95%"), (0.975, "97.5%"), (0.995, "99.5%"), (0.9999, "99.99%"), (0.29, "29%")]
)
def test_a_level_is_not_rounded_to_another(
    level: float, shown: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert markdown.percent(level) == shown
    for name, right in {"a": 1, "b": 3}.items():
        (tmp_path / f"{name}.csv").write_text(f"problem,n,c\np,4,{right}\n")
    assert cli.main(["compare", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--level", str(level)]) == 0
    assert f"1 problem, {shown} intervals.\n" in capsys.readouterr().out


def test_every_page_of_a_run_has_it(small: Experiment) -> None:
    small.score("grpo/seed0", "hard", [0.0, 0.0, 0.0, 0.0])  # below the base model
    assert cli.main(["table", "all"]) == cli.main(["summary"]) == 0
    pages = [path.read_text(encoding="utf-8") for path in Path("results").glob("*.md")]
    assert any("−0." in page for page in pages)
    assert [found for page in pages for found in HYPHEN.findall(page)] == []


def test_the_command_line_has_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, right in {"a": 1, "b": 3}.items():
        (tmp_path / f"{name}.csv").write_text("problem,n,c\n" + "".join(f"p{i},4,{right}\n" for i in range(8)))
    assert cli.main(["compare", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--k", "1"]) == 0
    said = capsys.readouterr().out
    assert "| −0.500 [no spread] |" in said
    assert not HYPHEN.search(said)


def test_latex_sets_the_sign_as_mathematics() -> None:
    assert rendering._escape_latex("r = −0.50 & more") == r"r = $-$0.50 \& more"
