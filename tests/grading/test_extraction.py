"""Completions as models write them, and properties of extraction."""

from __future__ import annotations

import ast
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxk.grading import extract_program

CODE = "n = int(input())\nprint(n * 2)\n"
F = "```"


@pytest.mark.parametrize(
    "tag",
    [
        *["python", "py", "Python", "python3", "", "python  ", "PY", " python", 'python title="a.py"', "{.python}"],
        *["python3.11", "python-3.11", "Python 3.11", "py3.8", "pypy3.10", "ipython3", "python:main.py"],
        "python,linenos",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_tags_and_line_ends(tag: str, end: str) -> None:
    text = f"Here is it:\n\n{F}{tag}\n{CODE}{F}\nDone.".replace("\n", end)
    assert extract_program(text) == (CODE, "fenced")


def test_unclosed_fence() -> None:
    assert extract_program(f"Sure.\n{F}python\n{CODE}") == (CODE, "unclosed")


def test_cut_by_the_token_limit_is_still_a_program_that_fails() -> None:
    program, status = extract_program(f"{F}python\nn = int(input())\nprint(n *")
    assert (program, status) == ("n = int(input())\nprint(n *\n", "unclosed")


def test_tildes_longer_fences_and_indentation() -> None:
    assert extract_program(f"~~~py\n{CODE}~~~")[0] == CODE
    assert extract_program(f"````python\n{CODE}````")[0] == CODE
    indented = "\n".join("   " + line for line in f"{F}python\n{CODE}{F}".split("\n"))
    assert extract_program("1. First\n" + indented)[0] == CODE


@pytest.mark.parametrize("tag", ["pythonic", "pytb", "python3.x", "pycon", "3.11", "cpp", "output"])
def test_other_tags_are_other_languages(tag: str) -> None:
    assert extract_program(f"{F}{tag}\n{CODE}{F}") == (None, "none")


@pytest.mark.parametrize("mark", ["> ", ">", " > ", "> > ", ">> "])
def test_a_block_in_a_quotation(mark: str) -> None:
    quoted = "".join(f"{mark}{line}\n" for line in f"So:\n{F}python\n{CODE}{F}\nDone.".split("\n"))
    assert extract_program(f"You asked:\n{quoted}\nThat is all.") == (CODE, "fenced")
    assert extract_program(f"{quoted}\n{F}text\n6\n{F}\n") == (CODE, "fenced")


def test_a_quotation_keeps_what_is_the_programs() -> None:
    code = "n = int(input())\nok = (\n    n\n    > 3\n)\nif ok:\n\n    print(n)\n"
    quoted = "".join(f"> {line}".rstrip() + "\n" for line in f"{F}python\n{code}{F}".split("\n"))
    assert extract_program(quoted)[0] == code
    assert extract_program(f"{F}python\n{code}{F}")[0] == code


def test_a_block_ends_with_its_quotation() -> None:
    quoted = "".join(f"> {line}\n" for line in f"{F}python\n{CODE}".rstrip().split("\n"))
    assert extract_program(f"{quoted}and so on, without end.") == (CODE, "unclosed")
    better = "print(int(input()) + 1)\n"
    assert extract_program(f"{quoted}Better:\n{F}python\n{better}{F}")[0] == better


def test_fence_the_prompt_opened() -> None:
    assert extract_program(f"{CODE}{F}\nThis doubles it.") == (CODE, "fenced")


@pytest.mark.parametrize(
    "after",
    [
        f"Example:\n{F}\n4\n{F}\n",
        f"Output:\n{F}text\nprint this\n{F}\n",
        f"Run it:\n{F}bash\npython a.py\n{F}\n",
        f"Usage:\n{F}python\nprint(solve(3))\n{F}\n",
        f"Input:\n{F}\n3\n1 2 3\n{F}\nOutput:\n{F}\n6\n{F}\n",
        f"It reads with\n{F}python\nn = int(input())\n{F}\n",
        f"In C++:\n{F}cpp\nint main() {{}}\n{F}\n",
    ],
)
def test_what_follows_the_solution_does_not_replace_it(after: str) -> None:
    assert extract_program(f"{F}python\n{CODE}{F}\n{after}")[0] == CODE


def test_the_last_of_two_solutions_counts() -> None:
    better = "print(int(input()) + 1)\n"
    assert extract_program(f"{F}python\n{CODE}{F}\nNo, better:\n{F}python\n{better}{F}")[0] == better


def test_longest_where_none_reads_or_prints() -> None:
    long = "def solve(a, b):\n    return a + b\n"
    assert extract_program(f"{F}python\n{long}{F}\n{F}python\nx = 1\n{F}")[0] == long


def test_without_fence() -> None:
    assert extract_program(CODE) == (CODE, "bare")
    assert extract_program("    " + CODE.replace("\n", "\n    ").rstrip(" "))[0] == CODE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n \n",
        "I cannot solve this.",
        "Yes",
        "42",
        "Sorry",
        "a, b",
        '"""doc"""',
        "x" * 10,
        "Answer: yes",
        "not possible",
        "yes or no",
        "a < b",
    ],
)
def test_prose_is_never_a_program(text: str) -> None:
    assert extract_program(text) == (None, "none")


def test_thinking_is_not_the_answer() -> None:
    draft = f"<think>try {F}python\nprint(input())\n{F} hmm</think>"
    assert extract_program(f"{draft}\n{F}python\n{CODE}{F}") == (CODE, "fenced")
    assert extract_program(f"<think>{F}python\n{CODE}{F}") == (None, "none")
    assert extract_program(f"so I think</think>{CODE}") == (CODE, "bare")


@pytest.mark.parametrize("line", ["print('</think>')", "print('<think>')"])
def test_tags_that_a_program_prints_are_its_own(line: str) -> None:
    code = f"{line}\n{CODE}"
    assert extract_program(f"Here:\n{F}python\n{code}{F}") == (code, "fenced")
    assert extract_program(code) == (code, "bare")


BODIES = {  # each parses, or nearly, and was slow or large in the parser
    "statements": "a\n" * 500_000,
    "calls": "a(b)\n" * 200_000,
    "a list": "x=[" + "1," * 500_000 + "]\n",
    "a sum": "x=" + "1+" * 500_000 + "1\n",
    "an f-string": 'x=f"' + "{a}" * 250_000 + '"\n',
    "an f-string below the bound": 'x=f"' + "{a!r:>{w}}" * 4_900 + '"\n',
    "statements below the bound": "a\n" * 24_000 + "1 2",
    "semicolons": "a;" * 500_000 + ")\n",
    "keywords": "f(" + "a=1," * 200_000 + "b c)\n",
    "cases": "match x:\n" + " case 1: pass\n" * 60_000,
    "indentation": "".join(" " * (i % 90) + "x\n" for i in range(50_000)),
    "white lines": (" " * 5_000 + "\n") * 500,
    "escapes": 'x="' + "\\N{DIGIT ONE}" * 60_000 + '"\n',
    "NULs": "\0" * 100_000 + "\n",
    "half surrogate pairs": 'x="' + "\ud800" * 100_000 + '"\n',
    "brackets": "x=" + "(" * 29 + "1" + ")" * 29 + "\n",
}
COMPLETIONS = {
    **{name: f"{F}python\n{body}{F}" for name, body in BODIES.items()},
    "fences": f"{F}python\nprint(input())\n{F}\n" * 100_000,
    "open fences": f"{F}python\n" * 100_000,
    "two kinds of fences": f"{F}\n~~~\n" * 100_000,
    "deep quotations": "".join("> " * depth + F + "\n" for depth in range(2_000)),
    "large blocks": (f"{F}python\n" + "a\n" * 100_000 + F + "\n") * 20,
    "a long tag": f"{F}py" + "1" * 1_000_000 + f"x\nprint(1)\n{F}",
    "thoughts": (" " * 100_000 + "</think>" + " " * 100_000 + "x\n") * 20,
    "broken ends of thoughts": (" " * 1_000 + "</thin\n") * 5_000,
    "a bare program": "a=b\n" * 250_000,
    "lines": "a\n" * 5_000_000,
    "one letter": "a" * 10_000_000,
    "carriage returns": "\r" * 5_000_000,
    "a line of tildes": "~" * 50_000 + "`",
    "a line with a fence and letters": F + "a" * 200_000 + "`",
    "spaces and a fence": " " * 100_000 + "~~~`",
    "a line of quotation marks": "> " * 100_000,
}


@pytest.mark.parametrize("name", COMPLETIONS)
def test_hostile_completions_cost_bounded_time(name: str) -> None:
    """Each took seconds to minutes once; they take up to 0.7 s."""
    started = time.process_time()
    extract_program(COMPLETIONS[name])
    assert time.process_time() - started < 5


def test_hostile_completions_cost_bounded_memory() -> None:
    """A tree takes up to 900 times its source: a megabyte of statements took 880 MiB."""
    code = (
        "from maxk.grading import extract_program\n"
        "def peak(): return int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])\n"
        "extract_program('print(1)')\nbefore = peak()\n"
        "for body in ('a\\n' * 500_000, 'a\\n' * 24_990, 'a;' * 24_990 + '\\n'):\n"
        f"    assert extract_program('{F}python\\n' + body + '{F}').status == 'fenced'\n"
        "print((peak() - before) // 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150  # MiB


def test_a_program_too_long_to_parse_is_still_the_program() -> None:
    table = "TABLE = [" + "1, " * 50_000 + "]\n"
    assert extract_program(f"Here:\n{F}python\n{table}{CODE}{F}") == (table + CODE, "fenced")
    assert extract_program(table + CODE) == (None, "none")  # perhaps prose: not proven to be code


def test_of_very_many_blocks_the_last_count() -> None:
    blocks = "".join(f"{F}python\nprint(int(input()) + {n})\n{F}\n" for n in range(1_000))
    assert extract_program(blocks) == ("print(int(input()) + 999)\n", "fenced")
    assert extract_program(f"{F}python\n{CODE}{F}\n" + f"{F}python\nx = 1\n{F}\n" * 150) == (CODE, "fenced")
    assert extract_program(f"{F}python\n{CODE}{F}\n" + f"{F}python\nx = 1\n{F}\n" * 200)[0] == "x = 1\n"


def test_tabs_and_unicode_names() -> None:
    code = "größe = int(input())\nif größe:\n\tprint(größe)\n"
    assert extract_program(f"{F}python\n{code}{F}")[0] == code


def test_only_foreign_code() -> None:
    assert extract_program(f"{F}cpp\nint main() {{}}\n{F}") == (None, "none")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "-" * 100_000 + "1",
        "a" + ".b" * 50_000,
        "[" * 90 + "]" * 90,
        "x\0y",
        "\ud800",
        "1 if 1 else " * 5000 + "1",
        "lambda: " * 5000 + "1",
        "not " * 20_000 + "x",
    ],
)
def test_hostile_text_does_no_harm(text: str) -> None:
    extract_program(text)
    extract_program(f"{F}python\n{text}\n{F}")


@given(st.text())
@settings(max_examples=200)
def test_never_raises_and_says_how(text: str) -> None:
    program, status = extract_program(text)
    assert status in ("fenced", "unclosed", "bare", "none")
    assert (program is None) == (status == "none")


@given(
    st.lists(
        st.sampled_from(
            [
                F,
                F + "python",
                F + "text",
                "~~~",
                "<think>",
                "</think>",
                "x = 1",
                "print(1)",
                "prose here",
                "\t",
                "    y = 2",
                "",
                "\r",
                "> " + F + "py",
                "> " + F,
                "> print(2)",
                ">",
            ]
        )
    )
)
@settings(max_examples=200)
def test_any_order_of_markers(lines: list[str]) -> None:
    program, status = extract_program("\n".join(lines))
    assert (program is None) == (status == "none")
    if status == "bare":
        ast.parse(program or "")


@given(
    st.sampled_from(["Here:\n", "", "Step 1.\nStep 2.\n", "> quote\n"]),
    st.sampled_from(["", "\nThat is all.", "\n\n- a\n- b"]),
)
def test_prose_around_changes_nothing(before: str, after: str) -> None:
    assert extract_program(f"{before}{F}python\n{CODE}{F}{after}") == (CODE, "fenced")
