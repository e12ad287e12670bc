"""Generation one batch ahead against generation in turn, with a vLLM server on a GPU of its own.

    python benchmarks/ahead.py --config config/mini.yaml --model PATH --url http://localhost:8123    # three minutes

Needs a running server (docs/scale.md has its command) and another GPU for the trainings, which follow each other. Both
take the exact off-policy objective with ratios to the server's probabilities, for one epoch. Prints, of the generation
batches after the first two, the median time, the mean reward, and how far samples lie from the policy that they train.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from processes import ROOT, WARM_UP, prepare, steps, train

OBJECTIVE = {"type": "bon_offpolicy_exact", "k": 4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(ROOT / "config" / "mini.yaml"), help="laid over the default experiment")
    parser.add_argument("--model", help="the base model, a folder, in place of the experiment's")
    parser.add_argument("--url", required=True, help="base URL of the server")
    parser.add_argument("--per-device-batch-size", type=int, default=64)
    args = parser.parse_args()
    prepare(args, {name: objective(args, ahead) for name, ahead in (("turn", False), ("ahead", True))}, {"gpus": 1})
    seconds = {name: train(name) for name in ("turn", "ahead")}
    for name in seconds:
        found = steps(name)[WARM_UP:]
        print(f"{name:5s} {seconds[name]:6.2f} s a generation batch; medians:", *(shown(found, key) for key in SHOWN))
    print(f"in turn takes {seconds['turn'] / seconds['ahead']:.2f} times as long")


SHOWN = ("reward", "sampler_ratio_q01", "sampler_ratio_q99", "ess_fraction", "clip_fraction")


def shown(found: list[dict[str, Any]], key: str) -> str:
    values = [step[key] for step in found if key in step]
    return f"{key} {statistics.median(values):.3f}" if values else f"{key} -"


def objective(args: argparse.Namespace, ahead: bool) -> dict[str, Any]:
    generator = {"backend": "vllm", "mode": "server", "url": args.url, "ahead": ahead}
    size = args.per_device_batch_size
    return {**OBJECTIVE, "training": {"old_policy": "sampler", "per_device_batch_size": size, "generator": generator}}


if __name__ == "__main__":
    main()
