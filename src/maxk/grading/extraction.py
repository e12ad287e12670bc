"""The program in a completion.

Rules, in order:

1. Reasoning is not the answer: text up to the last `</think>` is dropped, and an unclosed `<think>` leaves nothing.
2. Fenced blocks (three or more backticks or tildes, any indentation, CRLF or LF) whose tag is empty or names Python
   (`py`, `python3.11`, `pypy3`, `python:main.py`, …) are candidates; blocks in another language are not. The text
   before a closing fence that was never opened (the prompt may have opened it) and an unclosed last block are
   candidates, too. A block in a quotation (`> ```python`) loses its quotation marks and, as in CommonMark, ends with
   the quotation. Of more than 200 candidates, the last 200 count.
3. Of the candidates that parse: the last that both reads input and prints, else the last that reads, else the last that
   prints, else the longest. So a usage example or a sample output after the solution does not replace it. If none
   parses, the longest candidate is the program, and its verdict says so (`runtime_error`).
4. Without any fence the whole text is the program if it parses as Python and is more than words; prose is never run.

Cost: linear in the length of the completion, in memory of a few times its size, for any text. The regular
expressions are possessive, so that no line is scanned twice; candidates are positions, not copies; and parsing is
bounded, by `maxk.grading.parsing` for one block and by 100,000 characters for all blocks of a completion, the last ones
first. Text beyond these bounds counts as not parsed; only the last 4 Mi characters of a completion are read.
`benchmarks/hostile_text.py` checks this.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from maxk.grading import parsing

FENCED, UNCLOSED, BARE, NONE = "fenced", "unclosed", "bare", "none"

_FENCE = re.compile(r"^((?:[ \t]*+> ?)*+)[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^\s`{]*+)[^`\n]*+$", re.MULTILINE)
_QUOTATION_MARK = re.compile(r"[ \t]*+> ?")
_END_OF_THOUGHT = re.compile(r"^[ \t]*+</think>[ \t]*+$", re.MULTILINE)
_PYTHON_TAG = re.compile(r"(?:(?:[ic]?python|py|pypy)-?[0-9.]*+(?:[:;,=].*)?)?", re.IGNORECASE)
_INDENT = re.compile(r"^([ \t]*+)[^ \t\n]", re.MULTILINE)

_LONGEST = 1 << 22  # characters of a completion
_MOST_BLOCKS = 200
_PARSED_AT_MOST = 2 * parsing.LONGEST  # characters of one completion
_COST_OF_A_PARSE = 200  # characters that take as long as the parser's start

_READS = {"input", "stdin", "raw_input", "fileinput"}
_PRINTS = {"print", "stdout", "__stdout__"}
_READING_CALLS = {(name, source) for name in ("open", "read", "fdopen") for source in (0, "/dev/stdin")}
_PRINTING_CALLS = {("write", 1)}


class Extraction(NamedTuple):
    """The program, or None, and how it was found in the completion: fenced, unclosed, bare or none."""

    program: str | None
    status: str


def extract_program(completion: str) -> Extraction:
    """The Python program in a model's completion; never raises."""
    text = completion[-_LONGEST:].replace("\r\n", "\n").replace("\r", "\n")
    parser = _Parser()
    text = _after_thought(text, parser)
    if _first_fence(text) is None:
        return _bare(text, parser)
    best = _best(deque(_blocks(text), maxlen=_MOST_BLOCKS), text, parser)
    return Extraction(None, NONE) if best is None else best


class _Parser:
    """Parses blocks of one completion until its budget is spent; after that everything counts as not parsed."""

    def __init__(self) -> None:
        self._left = _PARSED_AT_MOST

    def parse(self, source: str) -> ast.Module | None:
        cost = len(source) + _COST_OF_A_PARSE
        if len(source) > parsing.LONGEST or cost > self._left:
            return None
        self._left -= cost
        return parsing.parse(source)


def _after_thought(text: str, parser: _Parser) -> str:
    """The text after a leading reasoning block; tags that a program prints are left alone.

    The block starts the completion, or the prompt started it and only `</think>` is here: alone on a line, or before
    the first fence. A block that never ends is followed by no answer.
    """
    if text.lstrip().startswith("<think>"):
        return text.partition("</think>")[2]
    if "</think>" not in text:
        return text
    ends = deque(_END_OF_THOUGHT.finditer(text), maxlen=1)
    if ends:
        return text[ends[0].end() :]
    fence = _first_fence(text)
    cut = text.rfind("</think>", 0, fence.start() if fence else len(text))
    if cut < 0 or (fence is None and parser.parse(text) is not None):
        return text
    return text[cut + len("</think>") :]


def _first_fence(text: str) -> re.Match[str] | None:
    return _FENCE.search(text) if "```" in text or "~~~" in text else None


# ------------------------------------------------------------------------------------------------------ blocks
@dataclass(slots=True)
class _Block:
    """A candidate: its position, its depth of quotation, and whether it only counts if it is code."""

    start: int
    end: int
    depth: int
    status: str
    must_be_code: bool = False

    def source(self, text: str) -> str:
        inner = text[self.start : self.end]
        if self.depth:
            inner = "\n".join(line[_unquoted(line, 0, len(line), self.depth)[0] :] for line in inner.split("\n"))
        return _dedented(inner).strip("\n") + "\n"


def _blocks(text: str) -> Iterator[_Block]:
    """Candidates in order."""
    opened: re.Match[str] | None = None
    first = True
    for line in _FENCE.finditer(text):
        if opened and (end := _end_of_quotation(text, opened, line.end())) is not None:
            yield from _candidate(opened, end, UNCLOSED)
            opened = None
        if opened is None:
            if first and not line[3]:  # the prompt may have opened the block that this fence closes
                yield _Block(0, line.start(), 0, FENCED, must_be_code=True)
            opened = line
        elif _closes(line, opened):
            yield from _candidate(opened, line.start(), FENCED)
            opened = None
        first = False
    if opened:
        end = _end_of_quotation(text, opened, len(text))
        yield from _candidate(opened, len(text) if end is None else end, UNCLOSED)


def _closes(line: re.Match[str], opened: re.Match[str]) -> bool:
    return not line[3] and line[2].startswith(opened[2]) and line[1].count(">") == opened[1].count(">")


def _candidate(opened: re.Match[str], end: int, status: str) -> Iterator[_Block]:
    if _PYTHON_TAG.fullmatch(opened[3]):
        yield _Block(min(opened.end() + 1, end), end, opened[1].count(">"), status)


def _end_of_quotation(text: str, opened: re.Match[str], stop: int) -> int | None:
    """The end of the quotation around a block: the first line with fewer marks, at most `stop`."""
    depth, start = opened[1].count(">"), opened.end() + 1
    while depth and start < stop:
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if _unquoted(text, start, end, depth)[1] < depth:
            return start
        start = end + 1
    return None


def _unquoted(text: str, start: int, end: int, depth: int) -> tuple[int, int]:
    """The position in a line after its first `depth` quotation marks, and how many of them it has."""
    marks = 0
    while marks < depth and (mark := _QUOTATION_MARK.match(text, start, end)):
        start, marks = mark.end(), marks + 1
    return start, marks


def _dedented(text: str) -> str:
    """`textwrap.dedent` without its lists of lines, which need many times the memory of the text."""
    margin: str | None = None
    for line in _INDENT.finditer(text):
        margin = line[1] if margin is None else _common_start(margin, line[1])
        if not margin:
            return text
    return re.sub(rf"^[ \t]{{0,{len(margin)}}}", "", text, flags=re.MULTILINE) if margin else text


def _common_start(a: str, b: str) -> str:
    return a[: next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))]


# ------------------------------------------------------------------------------------------------------ the best block
def _best(blocks: deque[_Block], text: str, parser: _Parser) -> Extraction | None:
    """The candidate that rule 3 chooses, looking at the last one first."""
    chosen: dict[int, Extraction] = {}
    for block in reversed(blocks):
        source = block.source(text)
        tree = parser.parse(source)
        if source.isspace() or (block.must_be_code and not _is_code(tree)):
            continue
        rank = _NOT_PARSED if tree is None else _rank(tree)
        if rank == _READS_AND_PRINTS:
            return Extraction(source, block.status)
        if rank not in chosen or (rank <= _NEITHER and len(source) >= len(chosen[rank].program or "")):
            chosen[rank] = Extraction(source, block.status)
    return chosen[max(chosen)] if chosen else None


_NOT_PARSED, _NEITHER, _READS_AND_PRINTS = -1, 0, 3


def _rank(tree: ast.Module) -> int:
    """3: reads and prints, 2: reads, 1: prints, 0: neither."""
    names: set[str] = set()
    calls: set[tuple[Any, Any]] = set()
    for node in ast.walk(tree):
        names.update(_names(node))
        calls.update(_call(node))
    return 2 * bool(names & _READS or calls & _READING_CALLS) + bool(names & _PRINTS or calls & _PRINTING_CALLS)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.ImportFrom):
        yield from (alias.name for alias in node.names)


def _call(node: ast.AST) -> Iterator[tuple[Any, Any]]:
    """Function and first argument of a call such as `open(0)` or `os.read(0, n)`."""
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        yield getattr(node.func, "id", None) or getattr(node.func, "attr", ""), node.args[0].value


def _bare(text: str, parser: _Parser) -> Extraction:
    source = _dedented(text).strip("\n") + "\n"
    return Extraction(source, BARE) if _is_code(parser.parse(source)) else Extraction(None, NONE)


def _is_code(tree: ast.Module | None) -> bool:
    """Whether it is more than words: "Yes", "42" and "Answer: yes" parse as Python but are no programs."""
    return tree is not None and not all(_is_words(node) for node in tree.body)


def _is_words(node: ast.stmt) -> bool:
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    return isinstance(node, ast.Expr) and not any(isinstance(inner, ast.Call) for inner in ast.walk(node))
