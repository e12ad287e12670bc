"""A verifiers taskset whose reward is the fraction of tests passed, in maxk's sandbox on the machine that scores.

    pip install '.[grade]' verifiers    # in a checkout of maxk

Name `SmallPrograms` wherever verifiers (or prime-rl) takes a taskset.
"""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf

from maxk.integrations.verifiers import CodeData, CodeTask

PROBLEMS = [
    {
        "prompt": "Write a Python program that reads two integers and prints their sum.",
        "tests": [{"stdin": "1 2\n", "expected": "3\n"}, {"stdin": "-4 4\n", "expected": "0\n"}],
    },
    {
        "prompt": "Write a Python program that reads a word and prints it backwards.",
        "tests": [{"stdin": "abc\n", "expected": "cba\n"}],
    },
]


class SmallPrograms(vf.Taskset[CodeTask, vf.TasksetConfig]):
    """Two problems."""

    def load(self) -> Iterator[CodeTask]:
        for problem in PROBLEMS:
            yield CodeTask(CodeData(**problem), self.config.task)
