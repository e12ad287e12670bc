"""The tables' numbers, marks, notes and files."""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_up import DATASET, Experiment

from maxk.artifacts import files
from maxk.errors import UserError
from maxk.reporting import estimates, markdown, rendering, tables, terminal
from maxk.reporting.load import load
from maxk.stages import show
from maxk.stages import table as stage


def fill(made: Experiment, name: str) -> rendering.Filled:
    table = tables.table(made.config, name)
    assert isinstance(table, tables.PaperTable)
    return rendering.fill(table, load(made.config), made.config)


def starred(filled: rendering.Filled) -> list[tuple[str | None, str]]:
    """Policies and columns of starred values."""
    return sorted(filled.stars)


def write(made: Experiment, name: str) -> list[str]:
    return tables.table(made.config, name).write(load(made.config), made.config)


def test_table_2_as_computed_by_hand(small: Experiment) -> None:
    assert rendering.values_to_csv(fill(small, "table2")) == (
        "policy,label,easy,hard,mean\n"
        "base,Base model,0.500000,0.062500,0.281250\n"
        "grpo,GRPO,0.625000,0.125000,0.375000\n"
        "bon_mean,BoN mean,0.875000,0.125000,0.500000\n"
    )


def test_markdown_marks_best_and_second_and_says_what_it_shows(small: Experiment) -> None:
    text = rendering.to_markdown(fill(small, "table2"))
    assert text.startswith("**Table 2: max@128 of all policies**\n\n| Method | easy | hard | mean |\n")
    assert "| GRPO | <u>0.625</u> | **0.125** | <u>0.375</u> |" in text
    assert "| BoN mean | **0.875** | **0.125** | **0.500** |" in text  # equal best values are all bold
    assert "| Base model | 0.500 | <u>0.062</u> | 0.281 |" in text
    assert "Problems: easy 4, hard 4; 128 samples per problem; training seed: 0; sandbox: landlock." in text
    assert (
        "easy is used in place of codecontests, hard is used in place of mbpp (generated tasks, not the benchmarks)"
        in text
    )


def test_latex_twin(small: Experiment) -> None:
    text = rendering.to_latex(fill(small, "table2"))
    assert text.startswith("% \\usepackage{booktabs,graphicx}\n")
    assert r"BoN mean & \textbf{0.875} & \textbf{0.125} & \textbf{0.500} \\" in text
    assert r"GRPO & \underline{0.625} &" in text
    assert r"95\% intervals" in text


def test_latex_twins_are_well_formed(small: Experiment) -> None:
    """What a compiler would stumble over: environments, braces, cells of a row, characters outside ASCII."""
    for spec in tables.paper_tables(small.config):
        text = rendering.to_latex(fill(small, spec.name))
        assert re.findall(r"\\begin{(\w+)}", text) == ["table", "tabular"]
        assert re.findall(r"\\end{(\w+)}", text) == ["tabular", "table"]
        unescaped = re.sub(r"\\[{}%&$#_]", "", text)
        assert unescaped.count("{") == unescaped.count("}")
        cells = [line for line in unescaped.splitlines() if line.endswith(r"\\")]
        assert {line.count("&") for line in cells} == {len(spec.columns)}
        assert (r"\resizebox" in text) == (len(spec.columns) > rendering.WIDEST_UNSCALED)
        assert text.isascii()


def test_the_paper_s_tables_are_declared(small: Experiment) -> None:
    declared = {one.name: one for one in tables.paper_tables(small.config)}
    assert list(declared) == [f"table{i}" for i in (1, 2, 3, 4, 5, 6, 13, 14)]  # of CodeContests, and of MBPP
    assert [c.header for c in declared["table1"].columns][:2] == ["easy pass@1", "easy pass@128"]
    assert [c.header for c in declared["table4"].columns][-2:] == ["mean max@1", "mean max@128"]
    assert declared["table5"].title.startswith("pass@k on easy")
    assert [c.header for c in declared["table14"].columns] == ["max@1", "max@2", "max@128"]
    assert {c.dataset for c in declared["table14"].columns} == {"hard"}
    with pytest.raises(
        UserError, match=r"no table 'table9' \(did you mean 'table\d+'\?\); known: table1, .*, statistics"
    ):
        tables.table(small.config, "table9")


def test_datasets_without_a_role_have_their_tables_after_the_paper_s(experiment: Callable[..., Experiment]) -> None:
    made = experiment(datasets={"easy": DATASET, "hard": {**DATASET, "paper": "livebench"}})
    named = {one.name: one.columns[0].dataset for one in tables.paper_tables(made.config)[4:]}
    assert named == {"table9": "hard", "table10": "hard", "table15": "easy", "table16": "easy"}


def test_cells_are_darker_where_a_column_s_values_are_higher(experiment: Callable[..., Experiment]) -> None:
    made = experiment().score_all({"base": {"easy": [0.0, 0.2]}, "grpo/seed0": {"easy": [0.2, 0.4]}})
    made.score("bon_mean/seed0", "easy", [1.0, 0.2])
    spec = tables.table(made.config, "table6")
    latex = rendering.to_latex(rendering.fill(spec, load(made.config), made.config))
    assert r"\usepackage[table]{xcolor}" in latex
    shades = [re.findall(r"gray!(\d+)", line) for line in latex.splitlines() if line.endswith(r"\\")]
    assert shades[1:] == [[], ["16"] * 3, ["40"] * 3]  # means .1, .3 and .6
    assert "cellcolor" not in rendering.to_latex(
        rendering.fill(tables.table(made.config, "table2"), load(made.config), made.config)
    )


def test_rows_that_are_not_trained_are_left_out_and_named(small: Experiment) -> None:
    table = fill(small, "table1")
    assert list(table.values.index) == ["base", "grpo"]
    assert "No row, because this experiment does not train them: grpo_binary." in table.notes


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
    absent = f"No row until `snakemake --cores all {target}` has been run, and the tables after it: GRPO (epochs 4)."
    row = "grpo_4epochs,GRPO (epochs 4),"

    table = fill(made, "table4")
    assert list(table.values.index) == ["base", "grpo"]
    assert absent in table.notes

    made.score("grpo_4epochs/seed0", "easy", [0.75] * 3)
    assert absent in fill(made, "table4").notes  # half of its scores

    made.score("grpo_4epochs/seed0", "hard", [0.75] * 3)
    table = fill(made, "table4")
    assert f"{row}0.750000,0.750000,0.750000,0.750000,0.750000,0.750000\n" in rendering.values_to_csv(table)
    assert list(table.ranks.loc["grpo_4epochs"]) == [1] * 6
    assert not any("No row" in note for note in table.notes)
    assert "grpo_4epochs" not in fill(made, "table2").values.index


def test_an_experiments_scores_that_do_not_fit_give_no_row_of_table4(
    experiment: Callable[..., Experiment],
) -> None:
    """They may belong to an earlier base model; the main tables are written all the same."""
    made = experiment(experiments={"longer": LONGER})
    policies = ("base", "grpo/seed0", "bon_mean/seed0", "grpo_4epochs/seed0")
    made.score_all({policy: {"easy": [0.5] * 3, "hard": [0.5] * 3} for policy in policies})
    stale = made.score("grpo_4epochs/seed0", "easy", [0.5] * 3, lineage={"base": "another"})
    table = fill(made, "table4")
    assert list(table.values.index) == ["base", "grpo"]
    assert any("No row until" in note for note in table.notes)
    assert any(stale in note and "base policy" in note for note in table.notes)


def test_blank_cells(small: Experiment) -> None:
    for dataset in ("easy", "hard"):
        Path(small.config.layout.scores("bon_mean/seed0", dataset)).unlink()
    table = fill(small, "table3")
    assert rendering.values_to_csv(table).endswith("bon_mean,BoN mean,,,\n")
    assert "| BoN mean | – | – | – |" in rendering.to_markdown(table)
    assert r"BoN mean & -- & -- & -- \\" in rendering.to_latex(table)
    assert "BoN mean on every dataset: no scores." in table.notes
    assert "| GRPO | **0.625** | **0.125** | **0.375** |" in rendering.to_markdown(table)


def test_notes_say_what_one_seed_cannot_show(small: Experiment, experiment: Callable[..., Experiment]) -> None:
    said = "One training seed: no claim about methods, only about these trained policies."
    assert said in fill(small, "table2").notes
    several, constant = experiment(seeds=[0, 1]), {"easy": [0.5], "hard": [0.5]}
    seeded = [f"{row}/seed{seed}" for row in ("grpo", "bon_mean") for seed in (0, 1)]
    several.score_all(dict.fromkeys(["base", *seeded], constant))
    assert said not in fill(several, "table2").notes
    untrained = experiment(objectives={}).score_all({"base": {"easy": [0.5], "hard": [0.5]}})
    assert said not in fill(untrained, "table2").notes
    assert not any("seed" in note for note in fill(untrained, "table2").notes)


def test_notes_count_the_seeds_that_have_scores(experiment: Callable[..., Experiment]) -> None:
    made, constant = experiment(seeds=[0, 1, 2]), {"easy": [0.5], "hard": [0.5]}
    made.score_all(dict.fromkeys(("base", "grpo/seed0", "bon_mean/seed0"), constant))
    notes = fill(made, "table2").notes
    assert "training seed: 0 (of 3 configured); sandbox" in notes[0]
    assert "One training seed: no claim about methods, only about these trained policies." in notes
    made.score_all({"bon_mean/seed1": constant})
    notes = fill(made, "table2").notes
    assert "training seeds: 0, 1 (of 3 configured; 1 to 2 per policy; mean over seeds); sandbox" in notes[0]
    said = "One training seed: no claim about methods, only about the trained policies that have no other."
    assert said in notes
    assert "training seed: 0 (of 3 configured); sandbox" in fill(made, "table1").notes[0]  # has no BoN mean


# ------------------------------------------------------------------------------------------------------- stars
OFF_POLICY = {
    "grpo": {"type": "grpo"},
    "bon_mean": {"type": "bon_mean", "k": 4},
    "bon_loo1": {"type": "bon_loo1", "k": 4},
    "off": {"type": "bon_offpolicy", "k": 4, "training": {"iterations": 2}},
    "exact": {"type": "bon_offpolicy_exact", "k": 4, "training": {"iterations": 2}},
}


def shifted(made: Experiment, problems: int, by: float) -> rendering.Filled:
    """Off-policy BoN above the best baseline (BoN mean) by `by` to 2·`by`, and our exact form above both."""
    rewards = np.linspace(0.1, 0.4, problems)
    above = by * np.linspace(1, 2, problems)
    rows = {"bon_loo1": rewards / 3, "grpo": rewards / 2, "bon_mean": rewards, "off": rewards + above}
    for dataset in ("easy", "hard"):
        made.score("base", dataset, rewards / 4)
        for row, values in {**rows, "exact": rewards + above + 0.1}.items():
            made.score(f"{row}/seed0", dataset, values)
    return fill(made, "table2")


def test_a_star_where_off_policy_is_significantly_better_than_the_best_baseline(
    experiment: Callable[..., Experiment],
) -> None:
    table = shifted(experiment(objectives=OFF_POLICY), problems=20, by=0.1)
    assert starred(table) == [("off", "easy"), ("off", "hard")]
    assert r"<u>0.400\*</u>" in rendering.to_markdown(table)  # our exact form is better, and not the paper's
    assert r"\underline{0.400*}" in rendering.to_latex(table)
    [note] = [note for note in table.notes if note.startswith("*: off-policy BoN is better")]
    assert "Holm-corrected over 2 datasets" in note
    assert "easy BoN mean, p = 3.8e-06, r = 1.00, 20 of 20;" in note  # Wilcoxon: 2 · 2/2^20


def test_no_star_where_off_policy_is_significantly_worse(experiment: Callable[..., Experiment]) -> None:
    table = shifted(experiment(objectives=OFF_POLICY), problems=20, by=-0.02)
    assert not table.stars
    assert not [note for note in table.notes if note.startswith("*") or "p =" in note]


def test_holm_correction_decides(experiment: Callable[..., Experiment]) -> None:
    """Six problems, all better: p = 2/2⁶ = 0.03125 on each of two datasets, 0.0625 after Holm."""
    assert not shifted(experiment(objectives=OFF_POLICY), 6, 0.1).stars


def test_with_too_few_problems_a_note_says_that_no_star_is_possible(experiment: Callable[..., Experiment]) -> None:
    table = shifted(experiment(objectives=OFF_POLICY), problems=1, by=0.1)
    assert not table.stars
    assert "p < 0.05 is impossible with fewer than 6 differing problems: easy, hard." in table.notes


def test_without_off_policy_there_are_no_stars_and_ties_are_all_bold(experiment: Callable[..., Experiment]) -> None:
    equal = experiment().score_all(
        {policy: {"easy": [0.5] * 9, "hard": [0.5] * 9} for policy in ("base", "grpo/seed0", "bon_mean/seed0")}
    )
    filled = fill(equal, "table2")
    assert (filled.ranks == 1).all(axis=None)
    assert not filled.stars
    assert not [note for note in filled.notes if note.startswith("*")]


def test_only_one_policy_is_neither_best_nor_second(experiment: Callable[..., Experiment]) -> None:
    made = experiment(objectives={})
    made.score("base", "easy", [0.5])
    made.score("base", "hard", [0.5])
    assert fill(made, "table2").ranks.isna().all(axis=None)


# ------------------------------------------------------------------------------------------------------- files
LABEL = r"50% of A_b & C|d *e* {f} \g ~^<h>"


def test_labels_are_escaped(experiment: Callable[..., Experiment]) -> None:
    made = experiment(objectives={"grpo": {"type": "grpo", "label": LABEL}})
    made.score("base", "easy", [0.5])
    made.score("grpo/seed0", "easy", [0.25])
    table = fill(made, "table2")
    text = rendering.to_markdown(table)
    assert r"50% of A\_b & C\|d \*e\* {f} \\g ~^\<h>" in text
    assert (
        r"50\% of A\_b \& C|d *e* \{f\} \textbackslash{}g \textasciitilde{}\textasciicircum{}\textless{}h"
        in rendering.to_latex(table)
    )
    assert f'"{LABEL}"' in rendering.values_to_csv(table) or LABEL in rendering.values_to_csv(table)


def test_the_files_are_the_same_bytes_every_time(small: Experiment) -> None:
    paths = write(small, "table2")
    assert paths == [f"results/table2.{suffix}" for suffix in ("csv", "md", "tex")]
    digests = [files.digest(path) for path in paths]
    assert digests == [files.digest(path) for path in write(small, "table2")]


def test_show_prints_numbers_and_marks(small: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    write(small, "table2")
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "120"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    printed = io.StringIO()
    terminal.write(Path("results/table2.md").read_text(), file=printed)
    assert "Table 2: max@128 of all policies" in printed.getvalue()
    assert "\x1b[1m0.875\x1b[0m" in printed.getvalue()  # bold
    assert "\x1b[4m0.625\x1b[0m" in printed.getvalue()  # underlined


def test_every_part_of_a_folded_table_says_what_its_rows_are() -> None:
    lines = [*markdown.head(["policy", "dataset", "solved", "lost"], words=2), "| GRPO | easy | 1 | 22222 |"]
    assert list(terminal.folded("\n".join(lines), 26)) == [
        "| policy | dataset | solved |\n| :--- | :--- | ---: |\n| GRPO | easy | 1 |",
        "| policy | dataset | lost |\n| :--- | :--- | ---: |\n| GRPO | easy | 22222 |",
    ]


@pytest.mark.parametrize("words", [2, 3])
def test_a_table_of_words_too_wide_to_repeat_them_is_folded_by_its_first_column(words: int) -> None:
    lines = [*markdown.head(["key", "method", "p"], words=words), f"| a | {'x' * 20} | 1 |"]
    dashes = ":---" if words == 3 else "---:"
    assert list(terminal.folded("\n".join(lines), 27)) == [
        f"| key | method |\n| :--- | :--- |\n| a | {'x' * 20} |",
        f"| key | p |\n| :--- | {dashes} |\n| a | 1 |",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_is_folded_to_the_width_and_never_cut(
    width: int, monkeypatch: pytest.MonkeyPatch, experiment: Callable[..., Experiment]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    header = ["Method", *(f"dataset-{i}" for i in range(8))]
    rows = [["**A \\| B**", *(f"<u>0.{i}{i}{i}</u>" for i in range(8))], ["C", *(f"0.{i}5{i}" for i in range(8))]]
    lines = [*markdown.head(header), *map(markdown.row, rows)]
    printed = io.StringIO()
    terminal.write("\n".join(["**Title**", "", *lines, "", "A note."]), file=printed)
    said = printed.getvalue()
    assert all(len(line.rstrip()) <= width for line in said.splitlines())
    assert "…" not in said
    for word in (*header, *(f"0.{i}{i}{i}" for i in range(8)), *(f"0.{i}5{i}" for i in range(8)), "Title", "A note."):
        assert word in said
    assert said.count("A | B") == said.count("Method") == (1 if width == 200 else said.count("C  "))


def test_without_a_trained_policy_no_table_compares_any(experiment: Callable[..., Experiment]) -> None:
    untrained, trained = experiment(objectives={}).config, experiment().config
    assert {"table1", "table4"} == set(tables.tables(trained)) - set(tables.tables(untrained))


def test_show_without_a_name_lists_the_tables(small: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    write(small, "table2")
    show.run(argparse.Namespace(name=None, config=small.config.layout.config))
    assert capsys.readouterr().out == "table2       Table 2: max@128 of all policies\n"


def test_the_command_writes_what_is_named_or_nothing(small: Experiment) -> None:

    def run(*names: str) -> None:
        stage.run(argparse.Namespace(names=names, config=small.config.layout.config))

    with pytest.raises(UserError, match="no table 'table9'"):
        run("table2", "table9")
    assert not list(Path("results").glob("table*"))
    run("all")
    for table in tables.tables(small.config).values():
        for path in table.paths(small.config):
            assert Path(path).stat().st_size, path


def test_what_takes_long_at_the_paper_s_size_says_how_far_it_is(
    small: Experiment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("maxk.progress.LINE_EVERY_S", 0.0)
    estimates._differences.cache_clear()
    stage.run(argparse.Namespace(names=["all"], config=small.config.layout.config))
    said = capsys.readouterr().err
    count = len(tables.tables(small.config))
    for label, total in (("tables", count), ("paired tests", 6)):
        assert f"{label}: 1/{total} in " in said
        assert f"{label}: {total}/{total} in " in said


def test_a_table_says_what_its_own_rows_lack(small: Experiment) -> None:
    for dataset in small.config.evaluated:
        Path(small.config.layout.scores("bon_mean/seed0", dataset)).unlink()
    said = "BoN mean on every dataset: no scores."
    assert said in fill(small, "table2").notes
    assert said not in fill(small, "table1").notes


def test_a_dataset_of_the_paper_s_name_is_not_in_place_of_itself(experiment: Callable[..., Experiment]) -> None:
    datasets = {"easy": {**DATASET, "paper": "codecontests"}, "mbpp": {**DATASET, "paper": "mbpp"}}
    made = experiment(datasets=datasets).score_all({"base": {"easy": [0.5], "mbpp": [0.5]}})
    said = "Datasets: easy is used in place of codecontests (generated tasks, not the benchmarks)."
    assert said in fill(made, "table2").notes
    assert not any(note.startswith("Datasets: ") for note in fill(made, "table14").notes)  # of mbpp alone


def test_a_wide_table_of_differences_is_shortened_to_one_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table at the end of a run on terminals of usual widths: intervals of means go first, then the base model."""
    mean, difference = "0.324 [0.273, 0.375]", "−0.018 [−0.052, +0.016]"
    header = ["Policy", "max@1", "max@128", "max@128 − Base model", "max@128 − GRPO"]
    table = [*markdown.head(header), markdown.row(["Off-policy BoN (paper)", mean, mean, difference, difference])]
    named = "All columns and intervals: results/summary.md."

    def said(width: int, *lines: str, whole: str = "results/summary.md") -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        printed = io.StringIO()
        terminal.write("\n".join(lines) + "\n\nA note.", file=printed, whole=whole)
        assert max(len(line.rstrip()) for line in printed.getvalue().splitlines()) <= width
        return printed.getvalue()

    assert (said(120, *table).count(mean), said(120, *table).count(difference)) == (2, 2)
    assert named not in said(120, *table)
    for width, differences in ((100, 2), (80, 1)):
        short = said(width, *table)
        assert short.count("Off-policy BoN (paper)") == 1  # in one piece
        assert (short.count("[0.273"), short.count("0.324"), short.count(difference)) == (0, 2, differences)
        assert ("max@128 − Base model" in short) is (differences == 2)
        assert "max@128 − GRPO" in short
        assert "A note." in short
        assert named in short
    for whole in (said(80, *table, whole=""), said(60, *(line.replace(" − ", " to ") for line in table))):
        assert whole.count(mean) == 2  # folded
        assert named not in whole
