"""The report opens on the result, holds everything there is, and needs nothing beside it."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_up import Experiment
from PIL import Image

from maxk import cli
from maxk.artifacts import files
from maxk.artifacts.records import Policy
from maxk.errors import UserError
from maxk.reporting import experiments, figures, report, tables, written
from maxk.reporting.load import load

PNG = b"\x89PNG a figure"


def drawn(made: Experiment) -> Experiment:
    """With all tables, and stand-ins for the figures."""
    scores = load(made.config)
    for table in tables.tables(made.config).values():
        table.write(scores, made.config)
    paths = {name: made.config.layout.figure(name) for name in figures.figures(made.config)}
    for name, path in paths.items():
        Path(path).write_bytes(PNG + name.encode())
    written.record(made.config.layout, list(paths.values()), scores.digest)
    return made


def page(made: Experiment, revision: str | None = "abc-dirty") -> str:
    return Path(report.write(load(made.config), made.config, revision)).read_text()


def text(html: str) -> str:
    """What a reader sees, on one line."""
    body = re.sub(r"<[^>]+>", " ", html[html.index("<body>") :])
    return " ".join(body.split())


class Tree(HTMLParser):
    """Checks that every element is closed in order; collects ids, and targets of links and images."""

    VOID = ("meta", "img", "input", "br", "hr")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [str(given["id"])] if "id" in given else []
        self.targets += [str(given[key]) for key in ("src", "href") if key in given]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_it_opens_on_the_result_and_ends_with_the_jobs(small: Experiment) -> None:
    files.write_text(small.config.layout.benchmark("train", "a"), "s\tcpu_time\n2.0\t1.5\n")
    files.write_text(small.config.layout.benchmark("train", "b"), "s\tcpu_time\n3.0\tNA\n")
    html = page(drawn(small))
    said = text(html)
    sections = (f'id="{name}"' for name in ("findings", "limits", "figures", "tables", "run", "graph"))
    order = [html.index(mark) for mark in ('class="result"', "<table>", "data:image/png", *sections)]
    assert order == sorted(order)
    assert "Experiment default BoN mean has the highest mean max@128, 0.500. It is " in said
    assert "GRPO against the base model: " in said
    assert "Not the paper's setting (generated tasks)" in said
    assert "One training seed: no claim about methods" in said
    assert re.search(r"<tr><td>train</td><td>2</td><td>5</td><td>2</td><td>3</td></tr>", html)
    assert "train 2 jobs, 5 s " in said  # wall clock, since CPU time is not wholly known
    assert "CPU time is a lower bound." in said


def test_it_is_sound_html_that_needs_nothing_beside_it(small: Experiment) -> None:
    tree = Tree(page(drawn(small)))
    assert tree.open == []
    assert len(set(tree.ids)) == len(tree.ids)
    for target in set(tree.targets) - {"https://arxiv.org/abs/2510.23393"}:  # a link to the paper
        assert target.startswith(("data:", "#")), target
        assert not target.startswith("#") or target[1:] in tree.ids, target


def test_a_phone_gets_the_main_table_two_columns_at_a_time(small: Experiment) -> None:
    html = page(drawn(small))
    wide, parts = (
        html.split(f'<section class="table {name}">')[1].split("</section>")[0] for name in ("wide", "narrow")
    )
    [rows] = tables_of(wide)
    first, second = tables_of(parts)
    assert rows[0] == ["Policy", "max@1", "max@128", "max@128 − Base model", "max@128 − GRPO"]
    assert [[*a, *b[1:]] for a, b in zip(first, second, strict=True)] == rows
    assert [row[0] for row in first] == [row[0] for row in second] == ["Policy", "Base model", "GRPO", "BoN mean"]
    assert re.search(r"0\.500 \[0\.\d+,\xa0", parts), "an interval would break in the middle"
    assert parts.endswith(wide.rpartition("</table>")[2]), "the note"


def test_what_the_text_names_is_a_link(small: Experiment) -> None:
    html = page(drawn(small))
    for said in ("statistics.csv", "table2.md", "<code>max_at_k_grid</code>", "<code>diversity</code>"):
        name = re.sub(r"<[^>]+>|\.\w+", "", said)
        assert f'<a href="#{name}">{said}</a>' in html
    kept = "`other` and results/table2.csv and table99.md stay"
    assert report.html(kept, {"table2"}) == f"<p>{kept.replace('`other`', '<code>other</code>')}</p>\n"
    assert report.html("[own link](table2.md)", {"table2"}) == '<p><a href="table2.md">own link</a></p>\n'
    # Inside its fold: a link to it opens the fold.
    assert re.search(r'<details>\n<summary><b>table2</b> [^\n]*</summary>\n<div class="soft" id="table2">', html)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
@pytest.mark.parametrize(("width", "enlarged"), [(390, False), (390, True), (1200, False)])
def test_figures_fit_the_screen(width: int, enlarged: bool, small: Experiment, tmp_path: Path) -> None:
    """Measured in a browser. On a phone, a figure that was tapped is enlarged in a frame that scrolls."""
    made = drawn(small)
    paths = [made.config.layout.figure(name) for name in figures.figures(made.config)]
    for path in paths:
        Image.new("RGB", (2000, 700)).save(path)
    written.record(made.config.layout, paths, load(made.config).digest)
    script = (
        "<script>const width = e => Math.round(e.getBoundingClientRect().width);"
        f"if ({str(enlarged).lower()}) document.querySelectorAll('.paper input').forEach(one => one.click());"
        "parent.postMessage(JSON.stringify([document.documentElement.scrollWidth,"
        "...[...document.querySelectorAll('.paper')].flatMap(one => [width(one), width(one.children[1])])]), '*')"
        "</script></body>"
    )
    (tmp_path / "page.html").write_text(page(made).replace("</body>", script))
    (tmp_path / "frame.html").write_text(  # a window of chromium is never so narrow
        "<script>onmessage = told => document.documentElement.dataset.found = told.data</script>"
        f'<iframe width="{width}" height="800" style="border: 0" src="page.html"></iframe>'
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000"]
    command = ["chromium", *options, "--dump-dom", f"file://{tmp_path}/frame.html"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r'data-found="\[([0-9,]+)\]"', done.stdout)
    assert found, done.stderr
    whole, *sizes = map(int, found[1].split(","))
    assert whole == width
    assert len(sizes) == 2 * len(paths)
    for frame, image in zip(sizes[::2], sizes[1::2], strict=True):
        assert frame <= width
        assert image > width if enlarged else image < frame


def tables_of(html: str) -> list[list[list[str]]]:
    """Rows of cells of every table."""
    return [
        [
            [cell.replace("\xa0", " ") for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            for row in table.split("<tr>")[1:]
        ]
        for table in html.split("<table>")[1:]
    ]


def test_it_holds_every_figure_and_table(small: Experiment) -> None:
    tree = Tree(page(drawn(small)))
    held = {target.partition(";base64,")[2] for target in tree.targets}
    for name, one in figures.figures(small.config).items():
        assert base64.b64encode(PNG + name.encode()).decode() in held, name
        assert one.title
    for table in tables.tables(small.config).values():
        csv = Path(table.paths(small.config)[0]).read_bytes()
        assert base64.b64encode(csv).decode() in held, table.name
        assert table.name in tree.ids


def test_it_says_what_was_run(small: Experiment) -> None:
    layout = small.config.layout
    files.write_json(layout.funnel("easy"), {"drawn": 9, "enough_tests": 6, "train": 2, "test": 4})
    for policy, torch in (("base", "2.1"), ("grpo/seed0", "2.2")):
        files.write_policy(layout.policy(policy), Policy(policy, policy, "m", None, {}, {"torch": torch}))
    said = text(page(drawn(small)))
    for fact in (
        "easy: drawn 9 → enough tests 6: 2 train, 4 test",
        "torch 2.1 and 2.2",
        "headline_k: 128",
        "sandbox landlock",
        "128, at temperature 1",
        "revision of this page abc-dirty",
    ):
        assert fact in said, fact
    assert "revision of this page not in a git repository" in text(page(small, revision=None))


def test_experiments_that_were_made_are_shown(experiment: Callable[..., Experiment]) -> None:
    study = {"question": "Is <k> too high?", "policies": ["grpo"], "reference": "grpo"}
    made = experiment(experiments={"study": study, "other": study})
    made.score_all({"base": {"easy": [0.0, 0.5], "hard": [0.5, 1.0]}})
    for suffix, content in (("csv", "policy\n"), ("md", "**study**\n\n| a |\n| :--- |\n| 1 |\n"), ("png", "figure")):
        files.write_text(made.config.layout.experiment("study", suffix), content)
    paths = [made.config.layout.experiment("study", suffix) for suffix in ("csv", "md", "png")]
    written.record(made.config.layout, paths, written.digest_of_scores(made.config.restricted_to("study")))
    html = page(drawn(made))
    assert 'id="study"' in html
    assert "Is &lt;k&gt; too high?" in html
    assert 'id="other"' not in html


def test_a_base_model_alone_has_a_useful_report(experiment: Callable[..., Experiment]) -> None:
    made = experiment(objectives={}).score_all({"base": {"easy": [0.0, 1.0], "hard": [1.0, 1.0]}})
    html = page(drawn(made))
    said = text(html)
    assert "Base model: max@1 0.750 [" in said
    assert "nothing was trained" in said
    assert "Findings" not in said
    assert "seed: no claim" not in said
    assert "Policies" not in said
    assert Tree(html).open == []


def test_names_of_users_are_text(experiment: Callable[..., Experiment]) -> None:
    label, model = "<script>A & B&lt;", "<script>/_m_"
    made = experiment(base={"source": "hub", "model": model}, objectives={"grpo": {"type": "grpo", "label": label}})
    made.score_all({"base": {"easy": [0.0], "hard": [0.5]}, "grpo/seed0": {"easy": [0.5], "hard": [0.5]}})
    html = page(drawn(made))
    assert "<script" not in html
    assert "&lt;script&gt;A &amp; B&amp;lt; has the highest mean" in html  # from the template
    assert "&lt;script&gt;A &amp; B&amp;lt;</td>" in html  # from Markdown
    assert "Base model: &lt;script&gt;/_m_." in html


def test_what_is_missing_is_one_line(small: Experiment) -> None:
    drawn(small)
    layout = small.config.layout
    for path in (layout.figure("training"), layout.figure("ratios")):
        Path(path).unlink()
    with pytest.raises(UserError) as error:
        page(small)
    said = "`maxk figure training ratios --config results/config.json`"
    assert str(error.value) == f"results: missing training.png, ratios.png; make them: {said}"
    for path in (layout.table("table2", "md"), layout.table("table2", "tex"), layout.table("statistics")):
        Path(path).unlink()
    with pytest.raises(UserError) as error:
        page(small)
    made = "maxk table table2 statistics --config results/config.json"
    missing = "table2.md, statistics.csv, training.png, ratios.png"
    assert str(error.value) == f"results: missing {missing}; make them: `{made} && {said[1:]}"


def test_what_was_cut_short_or_edited_is_refused(small: Experiment) -> None:
    layout = drawn(small).config.layout
    whole = Path(layout.table("table3")).read_bytes()
    Path(layout.table("table3")).write_bytes(whole[: len(whole) // 2])
    edited = Path(layout.table("table2", "md"))
    edited.write_text(edited.read_text().replace("0.500", "0.900"))
    Path(layout.figure("training")).write_bytes(PNG)
    with pytest.raises(UserError) as error:
        page(small)
    assert str(error.value) == (
        "results: not as written (cut short, edited, or by another version) table2.md, table3.csv, training.png; make "
        "them: `maxk table table2 table3 --config results/config.json && "
        "maxk figure training --config results/config.json`"
    )
    page(drawn(small))


def studied(experiment: Callable[..., Experiment]) -> Experiment:
    """With all tables and figures, and an experiment that was made and is shown."""
    study = {"question": "?", "policies": ["grpo"], "reference": "grpo"}
    low = {"low": {"type": "grpo", "training": {"learning_rate": 1e-6}}}
    made = experiment(experiments={"study": {**study, "objectives": low}})
    policies = ("base", "grpo/seed0", "bon_mean/seed0", "low/seed0")
    made.score_all({policy: {"easy": [0.5], "hard": [0.5]} for policy in policies})
    experiments.write("study", made.config)
    assert 'id="study"' in page(drawn(made))
    return made


def left_out(made: Experiment, capsys: pytest.CaptureFixture[str]) -> str:
    """Why the experiment is left out: the page and the command say the same."""
    capsys.readouterr()
    html = page(made)
    assert 'id="study"' not in html
    [line] = capsys.readouterr().err.splitlines()
    said = line.removeprefix("results/report.html: experiment study is left out: ")
    assert f"experiment study is left out: {said}" in unescape(text(html))
    why, again = said.split("; make it again: ")
    assert again == ("`maxk experiment study --config results/config.json && maxk report --config results/config.json`")
    assert cli.main(["experiment", "study"]) == cli.main(["report"]) == 0
    assert 'id="study"' in Path(made.config.layout.report).read_text()
    return why


def test_an_experiment_that_was_edited_is_left_out(
    experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    made = studied(experiment)
    table = Path(made.config.layout.experiment("study", "md"))
    table.write_text(table.read_text().replace("0.500", "0.900"))
    assert left_out(made, capsys) == "not as written (cut short, edited, or by another version)"


def test_an_experiment_of_an_earlier_version_is_left_out(
    experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    made = studied(experiment)
    shutil.rmtree("results/logs/written")
    drawn(made)
    assert left_out(made, capsys) == "not as written (cut short, edited, or by another version)"


@pytest.mark.parametrize("policy", ["base", "grpo/seed0", "low/seed0"])
def test_an_experiment_of_other_scores_is_left_out(
    policy: str, experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the scores are those of a policy that the main tables do not have."""
    made = studied(experiment)
    made.score(policy, "hard", [0.9])
    drawn(made)
    assert left_out(made, capsys) == "made from other scores"


def test_an_experiment_does_not_depend_on_scores_of_others(experiment: Callable[..., Experiment]) -> None:
    made = studied(experiment)
    made.score("bon_mean/seed0", "hard", [0.9])
    assert 'id="study"' in page(drawn(made))


def test_it_names_the_seeds_that_have_scores(experiment: Callable[..., Experiment]) -> None:
    made, constant = experiment(seeds=[0, 1, 2]), {"easy": [0.0, 0.5], "hard": [0.5, 1.0]}
    made.score_all(dict.fromkeys(("base", "grpo/seed0", "bon_mean/seed0"), constant))
    said = text(page(drawn(made)))
    assert "training seed 0 (of 3 configured)" in said
    assert "0, 1, 2" not in said.partition("headline_k")[0]
