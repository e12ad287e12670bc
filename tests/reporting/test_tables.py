"""The tables' numbers, marks, notes and files."""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_up import Experiment

from maxk.artifacts import files
from maxk.errors import UserError
from maxk.reporting import estimates, specs, tables, terminal
from maxk.reporting.load import load
from maxk.stages import show
from maxk.stages import table as stage


def build(made: Experiment, name: str) -> tables.Table:
    return tables.build(load(made.config), made.config, specs.table(made.config, name))


def test_table_2_as_computed_by_hand(small: Experiment) -> None:
    assert tables.to_csv(build(small, "table2")) == (
        "policy,label,easy,hard,mean\n"
        "base,Base model,0.500000,0.062500,0.281250\n"
        "grpo,GRPO,0.625000,0.125000,0.375000\n"
        "bon_mean,BoN mean,0.875000,0.125000,0.500000\n"
    )


def test_markdown_marks_best_and_second_and_says_what_it_shows(small: Experiment) -> None:
    text = tables.to_markdown(build(small, "table2"))
    assert text.startswith("**Table 2: max@128 of all policies**\n\n| Method | easy | hard | mean |\n")
    assert "| GRPO | <u>0.625</u> | **0.125** | <u>0.375</u> |" in text
    assert "| BoN mean | **0.875** | **0.125** | **0.500** |" in text  # equal best values are all bold
    assert "| Base model | 0.500 | <u>0.062</u> | 0.281 |" in text
    assert "Problems: easy 4, hard 4; 128 samples a problem; training seeds: 0; sandbox: landlock." in text
    assert "easy = codecontests, hard = mbpp (generated tasks, not the benchmarks)" in text


def test_latex_twin(small: Experiment) -> None:
    text = tables.to_latex(build(small, "table2"))
    assert text.startswith("% \\usepackage{booktabs,graphicx}\n")
    assert r"BoN mean & \textbf{0.875} & \textbf{0.125} & \textbf{0.500} \\" in text
    assert r"GRPO & \underline{0.625} &" in text
    assert r"95\% intervals" in text


def test_latex_twins_are_well_formed(small: Experiment) -> None:
    """What a compiler would stumble over: environments, braces, cells of a row, characters outside ASCII."""
    for name, spec in specs.tables(small.config).items():
        text = tables.to_latex(build(small, name))
        assert re.findall(r"\\begin{(\w+)}", text) == ["table", "tabular"]
        assert re.findall(r"\\end{(\w+)}", text) == ["tabular", "table"]
        unescaped = re.sub(r"\\[{}%&$#_]", "", text)
        assert unescaped.count("{") == unescaped.count("}")
        cells = [line for line in unescaped.splitlines() if line.endswith(r"\\")]
        assert {line.count("&") for line in cells} == {len(spec.columns)}
        assert (r"\resizebox" in text) == (len(spec.columns) > tables.WIDEST_UNSCALED)
        assert text.isascii()


def test_the_paper_s_tables_are_declared(small: Experiment) -> None:
    declared = specs.tables(small.config)
    assert list(declared) == [f"table{i}" for i in range(1, 9)]
    assert [c.header for c in declared["table1"].columns][:2] == ["easy pass@1", "easy pass@128"]
    assert [c.header for c in declared["table4"].columns][-2:] == ["mean max@1", "mean max@128"]
    assert declared["table5"].title.startswith("pass@k on easy")
    assert [c.header for c in declared["table8"].columns] == ["max@1", "max@2", "max@128"]
    assert {c.dataset for c in declared["table8"].columns} == {"hard"}
    with pytest.raises(UserError, match="no table 'table9'; this experiment has table1 … table8"):
        specs.table(small.config, "table9")


def test_rows_that_are_not_trained_are_left_out_and_named(small: Experiment) -> None:
    table = build(small, "table1")
    assert list(table.entries) == ["base", "grpo"]
    assert "No row, as this experiment does not train them: grpo_binary." in table.notes


LONGER = {
    "question": "Is it only training longer?",
    "policies": ["grpo"],
    "reference": "grpo",
    "objectives": {
        "grpo_4epochs": {"type": "grpo", "training": {"epochs": 4}},
        "grpo_warm": {"type": "grpo", "training": {"temperature": 1.3}},
    },
}


def test_table4_shows_policies_of_experiments_once_they_are_scored(experiment: Callable[..., Experiment]) -> None:
    made = experiment(experiments={"longer": LONGER})
    scores = {"base": 0.25, "grpo/seed0": 0.5, "bon_mean/seed0": 0.5}
    made.score_all({policy: {"easy": [value] * 3, "hard": [value] * 3} for policy, value in scores.items()})
    target = "results/experiments/longer.csv"
    blank = f"Blank until `snakemake --cores all {target}` has been run, and the tables after it: GRPO (epochs 4)."
    row = "grpo_4epochs,GRPO (epochs 4),"

    table = build(made, "table4")
    assert list(table.entries) == ["base", "grpo", "grpo_4epochs"]
    assert f"{row},,,,,\n" in tables.to_csv(table)
    assert blank in table.notes

    made.score("grpo_4epochs/seed0", "easy", [0.75] * 3)
    assert blank in build(made, "table4").notes  # half of its scores

    made.score("grpo_4epochs/seed0", "hard", [0.75] * 3)
    table = build(made, "table4")
    assert f"{row}0.750000,0.750000,0.750000,0.750000,0.750000,0.750000\n" in tables.to_csv(table)
    assert [entry.rank for entry in table.entries["grpo_4epochs"]] == [tables.BEST] * 6
    assert not any("Blank" in note for note in table.notes)
    assert "grpo_4epochs" not in build(made, "table2").entries


def test_an_experiments_scores_that_do_not_fit_leave_its_row_of_table4_blank(
    experiment: Callable[..., Experiment],
) -> None:
    """They may be of a base model that is no more; the main tables are written all the same."""
    made = experiment(experiments={"longer": LONGER})
    policies = ("base", "grpo/seed0", "bon_mean/seed0", "grpo_4epochs/seed0")
    made.score_all({policy: {"easy": [0.5] * 3, "hard": [0.5] * 3} for policy in policies})
    stale = made.score("grpo_4epochs/seed0", "easy", [0.5] * 3, lineage={"base": "another"})
    table = build(made, "table4")
    assert {entry.value for entry in table.entries["grpo_4epochs"]} == {None}
    assert any("Blank until" in note for note in table.notes)
    assert any(stale in note and "base policy" in note for note in table.notes)


def test_blank_cells(small: Experiment) -> None:
    for dataset in ("easy", "hard"):
        Path(small.config.layout.scores("bon_mean/seed0", dataset)).unlink()
    table = build(small, "table3")
    assert tables.to_csv(table).endswith("bon_mean,BoN mean,,,\n")
    assert "| BoN mean | – | – | – |" in tables.to_markdown(table)
    assert r"BoN mean & -- & -- & -- \\" in tables.to_latex(table)
    assert "BoN mean on every dataset: no scores." in table.notes
    assert "| GRPO | **0.625** | **0.125** | **0.375** |" in tables.to_markdown(table)


def test_footnotes_give_the_tests_and_say_where_none_can_be_significant(small: Experiment) -> None:
    """BoN mean against GRPO: greater on two of four problems of `easy`, on one and less on one of `hard`."""
    table = build(small, "table2")
    [tests] = [note for note in table.notes if note.startswith("Best against second")]
    assert "easy p = 1, r = 1.00, 2 of 4; hard p = 1, r = 0.00, 2 of 4." in tests
    assert "Fewer than 6 problems differ, so p < 0.05 is out of reach: easy, hard." in table.notes


# ------------------------------------------------------------------------------------------------------- stars
def shifted(made: Experiment, problems: int, by: float) -> tables.Table:
    rewards = np.linspace(0, 0.5, problems)
    for dataset in ("easy", "hard"):
        made.score("base", dataset, rewards)
        made.score("grpo/seed0", dataset, rewards / 2)
        made.score("bon_mean/seed0", dataset, rewards + by * np.linspace(1, 2, problems))
    return build(made, "table2")


def test_a_star_where_the_best_is_significantly_better(experiment: Callable[..., Experiment]) -> None:
    table = shifted(experiment(), problems=20, by=0.1)
    assert [entry.starred for entry in table.entries["bon_mean"]] == [True, True, False]
    assert r"**0.400\***" in tables.to_markdown(table)
    assert r"\textbf{0.400*}" in tables.to_latex(table)


def test_holm_correction_decides(experiment: Callable[..., Experiment]) -> None:
    """Six problems, all better: p = 2/2⁶ = 0.03125 on each of two datasets, 0.0625 after Holm."""
    assert not any(entry.starred for entry in shifted(experiment(), 6, 0.1).entries["bon_mean"])


def test_one_problem_and_equal_policies_have_no_star(experiment: Callable[..., Experiment]) -> None:
    table = shifted(experiment(), problems=1, by=0.1)
    assert not any(entry.starred for entry in table.entries["bon_mean"])
    equal = experiment().score_all(
        {policy: {"easy": [0.5] * 9, "hard": [0.5] * 9} for policy in ("base", "grpo/seed0", "bon_mean/seed0")}
    )
    for entries in build(equal, "table2").entries.values():
        assert {(entry.rank, entry.starred) for entry in entries} == {(tables.BEST, False)}


def test_only_one_policy_is_neither_best_nor_second(experiment: Callable[..., Experiment]) -> None:
    made = experiment(objectives={})
    made.score("base", "easy", [0.5])
    made.score("base", "hard", [0.5])
    assert {entry.rank for entry in build(made, "table2").entries["base"]} == {0}


# ------------------------------------------------------------------------------------------------------- files
LABEL = r"50% of A_b & C|d *e* {f} \g ~^<h>"


def test_labels_are_escaped(experiment: Callable[..., Experiment]) -> None:
    made = experiment(objectives={"grpo": {"type": "grpo", "label": LABEL}})
    made.score("base", "easy", [0.5])
    made.score("grpo/seed0", "easy", [0.25])
    table = build(made, "table2")
    markdown = tables.to_markdown(table)
    assert r"50% of A\_b & C\|d \*e\* {f} \\g ~^\<h>" in markdown
    assert (
        r"50\% of A\_b \& C|d *e* \{f\} \textbackslash{}g \textasciitilde{}\textasciicircum{}\textless{}h"
        in tables.to_latex(table)
    )
    assert f'"{LABEL}"' in tables.to_csv(table) or LABEL in tables.to_csv(table)


def test_the_files_are_the_same_bytes_every_time(small: Experiment) -> None:
    made = [tables.write(build(small, "table2"), small.config) for _ in range(2)]
    assert made[0] == [*(f"results/table2.{suffix}" for suffix in ("csv", "md", "tex")), "results/report/table2.html"]
    digests = [files.digest(path) for path in made[0]]
    tables.write(build(small, "table2"), small.config)
    assert digests == [files.digest(path) for path in made[0]]


def test_show_prints_numbers_and_marks(small: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.write(build(small, "table2"), small.config)
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "120"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    printed = io.StringIO()
    terminal.show("results/table2.md", file=printed)
    assert "Table 2: max@128 of all policies" in printed.getvalue()
    assert "\x1b[1m0.875\x1b[0m" in printed.getvalue()  # bold
    assert "\x1b[4m0.625\x1b[0m" in printed.getvalue()  # underlined
    with pytest.raises(UserError, match=r"results/table7.md: no such file; run `maxk table table7`"):
        terminal.show("results/table7.md")


def test_show_without_a_name_lists_the_tables(small: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    tables.write(build(small, "table2"), small.config)
    show.run(argparse.Namespace(name=None, config=small.config.layout.config))
    assert capsys.readouterr().out == "table2       Table 2: max@128 of all policies\n"


def test_the_command_writes_what_is_named_or_nothing(small: Experiment) -> None:
    files.write_json(small.config.layout.tracking, {"enabled": False})

    def run(*names: str) -> None:
        stage.run(argparse.Namespace(names=names, config=small.config.layout.config))

    with pytest.raises(UserError, match="no table 'table9'"):
        run("table2", "table9")
    assert not list(Path("results").glob("table*"))
    run("all")
    assert len(list(Path("results").glob("table*"))) == 3 * len(specs.tables(small.config))
    for name in ("statistics.csv", "paired_tests.csv", "comparison.csv", "comparison.md", "report/comparison.html"):
        assert Path("results", name).stat().st_size, name


def test_what_takes_long_at_the_paper_s_size_says_how_far_it_is(
    small: Experiment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_json(small.config.layout.tracking, {"enabled": False})
    monkeypatch.setattr("maxk.progress.LINE_EVERY_S", 0.0)
    estimates.resample.cache_clear()
    stage.run(argparse.Namespace(names=["all"], config=small.config.layout.config))
    said = capsys.readouterr().err
    count = len(specs.tables(small.config))
    for label, total in (("tables", count), ("bootstrap", 2), ("paired tests", 6)):
        assert f"{label}: 1/{total} (about " in said
        assert f"{label}: {total}/{total} in " in said


def test_a_table_says_what_its_own_rows_lack(small: Experiment) -> None:
    for dataset in small.config.evaluated:
        Path(small.config.layout.scores("bon_mean/seed0", dataset)).unlink()
    said = "BoN mean on every dataset: no scores."
    assert said in build(small, "table2").notes
    assert said not in build(small, "table1").notes
