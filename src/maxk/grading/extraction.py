"""The program in a completion.

Rules, in order:

1. What a model thinks aloud is not its answer: text up to the last `</think>` is dropped, and a `<think>` never closed
   leaves nothing.
2. Fenced blocks (three or more backticks or tildes, any indentation, CRLF or LF) whose tag is empty or names Python
   (`py`, `python3.11`, `pypy3`, `python:main.py`, …) are candidates; blocks in another language are not. The text
   before a fence that closes but never opened is one too (the prompt may have opened it), and so is an unclosed last
   block. A block in a quotation (`> ```python`) loses its quotation marks and, as in CommonMark, ends with the
   quotation.
3. Of the candidates that parse: the last that both reads input and prints, else the last that reads, else the last that
   prints, else the longest. So a usage example or a sample output after the solution does not replace it. If none
   parses, the longest candidate is the program, and its verdict says so (`runtime_error`).
4. Without any fence the whole text is the program if it parses as Python and is more than words; prose is never run.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from dataclasses import dataclass
from typing import NamedTuple

FENCED, UNCLOSED, BARE, NONE = "fenced", "unclosed", "bare", "none"

# Possessive: a long line of fence characters costs no backtracking.
_FENCE = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^\s`{]*+)[^`]*+$")
_QUOTATION = r"(?:[ \t]*+> ?)"
_END_OF_THOUGHT = re.compile(r"^[ \t]*</think>[ \t]*$", re.MULTILINE)
_PYTHON_TAG = re.compile(r"(?:(?:[ic]?python|py|pypy)-?[0-9.]*(?:[:;,=].*)?)?", re.IGNORECASE)
_LONGEST = 1 << 20  # characters; nothing longer is a program, and parsing it would cost seconds


class Extraction(NamedTuple):
    """The program, or None, and how it stood in the completion: fenced, unclosed, bare or none."""

    program: str | None
    status: str


@dataclass
class _Block:
    source: str
    status: str


def extract_program(completion: str) -> Extraction:
    """The Python program in a model's completion; never raises, whatever the text."""
    text = completion.replace("\r\n", "\n").replace("\r", "\n")
    text = _after_thought(text)
    blocks, fences = _blocks(text)
    if not fences:
        return _bare(text)
    best = _best(blocks)
    return Extraction(None, NONE) if best is None else Extraction(best.source, best.status)


def _after_thought(text: str) -> str:
    """What follows a reasoning block at the start; tags that a program prints are left alone.

    The block opens the completion, or the prompt opened it and only its end stands here: on a line of its own, or
    before the first fence. A block that never ends has no answer behind it.
    """
    if text.lstrip().startswith("<think>"):
        return text.partition("</think>")[2]
    ends = list(_END_OF_THOUGHT.finditer(text))
    if ends:
        return text[ends[-1].end() :]
    lines = text.split("\n")
    fence = next((number for number, line in enumerate(lines) if _FENCE.match(_bare_line(line)[0])), len(lines))
    before, behind = "\n".join(lines[:fence]), lines[fence:]
    if "</think>" not in before or (not behind and _parse(text) is not None):
        return text
    return "\n".join([before.rpartition("</think>")[2], *behind])


def _blocks(text: str) -> tuple[list[_Block], int]:
    """Candidates in order, and the number of fence lines seen."""
    blocks: list[_Block] = []
    lines: list[str] = []
    fence, tag, fences, depth = "", "", 0, 0
    for whole_line in text.split("\n"):
        line, marks = _bare_line(whole_line, depth if fence else None)
        if fence and marks < depth:  # the quotation that it stood in has ended
            _add(blocks, tag, lines, UNCLOSED)
            fence, lines = "", []
        match = _FENCE.match(line)
        if match and not fence:
            fences += 1
            if fences == 1 and not match[2]:
                _add(blocks, "", lines, FENCED, must_be_code=True)  # the prompt may have opened this one
            fence, tag, lines, depth = match[1], match[2], [], marks
        elif match and not match[2] and match[1].startswith(fence):
            fences += 1
            _add(blocks, tag, lines, FENCED)
            fence, lines = "", []
        else:
            lines.append(line if fence else whole_line)
    if fence:
        _add(blocks, tag, lines, UNCLOSED)
    return blocks, fences


def _bare_line(line: str, depth: int | None = None) -> tuple[str, int]:
    """A line without its first `depth` marks of quotation (None: all), and how many it lost."""
    repeated = "*+" if depth is None else f"{{0,{depth}}}+"
    marks = re.match(_QUOTATION + repeated, line)
    assert marks is not None  # it matches nothing at all, too
    return line[marks.end() :], marks[0].count(">")


def _add(blocks: list[_Block], tag: str, lines: list[str], status: str, must_be_code: bool = False) -> None:
    source = textwrap.dedent("\n".join(lines)).strip("\n")
    if _PYTHON_TAG.fullmatch(tag) and source.strip() and not (must_be_code and not _is_code(_parse(source))):
        blocks.append(_Block(source + "\n", status))


def _best(blocks: list[_Block]) -> _Block | None:
    ranked = [(_rank(tree), index) for index, block in enumerate(blocks) if (tree := _parse(block.source)) is not None]
    if not ranked:
        return max(blocks, key=lambda block: len(block.source), default=None)
    rank, index = max(ranked)
    if rank > 0:
        return blocks[index]
    return max((blocks[index] for _, index in ranked), key=lambda block: len(block.source))


def _rank(tree: ast.Module) -> int:
    """3: reads and prints, 2: reads, 1: prints, 0: neither."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    reads = bool(names & {"input", "stdin", "raw_input", "fileinput"} or _opens_stdin(tree))
    prints = bool(names & {"print", "stdout", "__stdout__"} or _calls(tree, "write", 1))
    return 2 * reads + prints


def _opens_stdin(tree: ast.Module) -> bool:
    return _calls(tree, "open", 0) or _calls(tree, "read", 0) or _calls(tree, "fdopen", 0)


def _calls(tree: ast.Module, function: str, descriptor: int) -> bool:
    """Whether `function(descriptor, …)` is called, such as `open(0)` or `os.read(0, n)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            if name == function and node.args[0].value in (descriptor, "/dev/stdin"):
                return True
    return False


def _bare(text: str) -> Extraction:
    source = textwrap.dedent(text).strip("\n")
    if _is_code(_parse(source)):
        return Extraction(source + "\n", BARE)
    return Extraction(None, NONE)


def _is_code(tree: ast.Module | None) -> bool:
    """More than words: "Yes", "42", "not possible" and "Answer: yes" parse as Python but are no programs."""
    return tree is not None and not all(_is_words(node) for node in tree.body)


def _is_words(node: ast.stmt) -> bool:
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    return isinstance(node, ast.Expr) and not any(isinstance(inner, ast.Call) for inner in ast.walk(node))


def _parse(source: str) -> ast.Module | None:
    if len(source) > _LONGEST:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            return None
