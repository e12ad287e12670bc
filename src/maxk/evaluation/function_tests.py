"""Runs function tests (HumanEval, MBPP, LiveCodeBench, APPS) on the grader, whose tests are stdin/stdout.

A driver wraps the solution. It reads a test from standard input, runs the solution as a separate module with standard
output switched off, and prints one line, which the grader compares: the value of a call (`call_test`), or a word if the
benchmark's own test code raised nothing (`assert_test`). An expected value of a call never enters the child. Those of
asserts do, so a hostile solution can forge their verdicts, which are marked wherever they are written (docs/grade.md).

As in the benchmarks' graders, `if __name__ == "__main__":` blocks do not run. The solution's standard input is empty.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from typing import Any

from maxk.grading.verdicts import Test


def plain(value: Any) -> Any:
    """A value such that equal values have equal JSON: tuples as lists, 2.0 and True as 2 and 1."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, float)) and math.isfinite(value) and value == int(value):
        return int(value)
    return value


# The solution is a separate module, so it sees none of the driver's names.
_DRIVER = """\
from __future__ import annotations
import io, json, math, sys, types
{imports}
{plain}

class Silent(io.TextIOBase):
    def write(self, text):
        return len(text)

def main():
    sys.set_int_max_str_digits(0)
    test, out = json.load(sys.stdin), sys.stdout
    sys.stdin, sys.stdout = io.StringIO(""), Silent()
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    exec(compile({source!r}, "solution.py", "exec", dont_inherit=True), module.__dict__)
    if "function" in test:
        holder = module.Solution() if hasattr(module, "Solution") else module
        answer = json.dumps(plain(getattr(holder, test["function"])(*test["arguments"])), sort_keys=True, default=repr)
    else:
        answer = test["word"]
        try:
            exec(compile(test["code"], "test.py", "exec", dont_inherit=True), module.__dict__)
        except AssertionError:
            answer = "an assertion failed"
    sys.stdout = out
    print(answer)

main()
"""


def driver(solution: str, imports: str = "") -> str:
    """The program that runs `solution` on function tests; `imports` are statements for the driver."""
    return _DRIVER.format(source=solution, imports=imports, plain=inspect.getsource(plain))


def call_test(function: str, arguments: list[Any], value: Any) -> Test:
    """Tests `function(*arguments) == value` in JSON values; calls a method of `Solution` if that class exists."""
    return json.dumps({"function": function, "arguments": arguments}), json.dumps(plain(value), sort_keys=True)


def assert_test(code: str) -> Test:
    """Tests that `code`, run in the solution's module, raises nothing."""
    word = f"passed {hashlib.sha256(code.encode(errors='surrogatepass')).hexdigest()[:16]}"
    return json.dumps({"code": code, "word": word}), word
