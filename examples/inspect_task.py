"""An Inspect evaluation of code: 16 epochs, programs run in maxk's sandbox, unbiased max@1, max@4 and max@8.

pip install '.[grade]' inspect-ai    # in a checkout of maxk
inspect eval examples/inspect_task.py --model hf/Qwen/Qwen2.5-Coder-0.5B-Instruct
"""

from __future__ import annotations

from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.solver import generate

from maxk.integrations.inspect_ai import code_tests, max_at

SAMPLES = [
    Sample(
        input="Write a Python program that reads two integers and prints their sum.",
        metadata={"tests": [{"stdin": "1 2\n", "expected": "3\n"}, {"stdin": "-4 4\n", "expected": "0\n"}]},
    ),
    Sample(
        input="Write a Python program that reads a word and prints it backwards.",
        metadata={"tests": [{"stdin": "abc\n", "expected": "cba\n"}]},
    ),
]


@task
def small_programs() -> Task:
    return Task(
        dataset=MemoryDataset(SAMPLES),
        solver=generate(),
        scorer=code_tests(),
        epochs=Epochs(16, [max_at(1), max_at(4), max_at(8)]),
    )
