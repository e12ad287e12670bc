"""Shows the pocket tasks of a configuration: one example, and figures of every family.

python -m maxk.data.pocket config/config.yaml
"""

from __future__ import annotations

import argparse

from maxk import config as configuration
from maxk.config import PocketDataset, PretrainedBase
from maxk.data.pocket import corpus, generate
from maxk.records import Problem


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m maxk.data.pocket", description=__doc__)
    parser.add_argument("config", help="a whole configuration, such as config/config.yaml")
    config = configuration.load(parser.parse_args().config)
    families = {
        name: generate(name, dataset) for name, dataset in config.datasets.items() if isinstance(dataset, PocketDataset)
    }
    known = set()
    if isinstance(config.base, PretrainedBase):
        known = {statement for statement, _ in corpus(config.base.corpus, config.base.seed)}

    example = next(problem for problems, _ in families.values() for problem in problems if problem.split == "test")
    print(_shown(example), end="\n\n")
    for name, (problems, funnel) in families.items():
        test = [problem.statement for problem in problems if problem.split == "test"]
        share = sum(statement in known for statement in test) / max(len(test), 1)
        print(f"{name}: {share:.0%} of the test statements occur in the pretraining corpus")
        print("  " + " → ".join(f"{filter_name} {count}" for filter_name, count in funnel.items()))


def _shown(problem: Problem) -> str:
    tests = "\n".join(f"  {test.stdin.strip()}  →  {test.expected.strip()}" for test in problem.tests)
    return f"{problem.problem_id}: {problem.statement}\n\n{problem.reference}\n\n{tests}"


if __name__ == "__main__":
    main()
