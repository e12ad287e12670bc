"""How far rounding alone moves the ratios of whole completions: a policy trained at a learning rate that moves nothing.

    python benchmarks/rounding.py                                           # the pocket base model, on the CPU
    python benchmarks/rounding.py --config config/mini.yaml --model PATH    # on a GPU: what 16 bits do at 256 tokens

In float32 ratios stay 1. What bfloat16 makes of them is noise in off-policy weights (docs/objectives.md).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from maxk import config as configuration
from maxk import environment
from maxk.training.pretrain import pretrain
from trainer import ROOT, by_length, make_trainer

ITERATIONS, BATCHES, LEARNING_RATE = 3, 2, 1e-8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", help="an experiment laid over the default, for its training settings and problems")
    parser.add_argument("--model", help="a model folder; by default the pocket base model is pretrained")
    args = parser.parse_args()
    torch.set_num_threads(1)
    environment.quiet_libraries()
    content = configuration.read_yaml(ROOT / "config" / "config.yaml")
    if args.config is not None:
        content = configuration.overlay(content, configuration.read_yaml(args.config))
    config = configuration.parse(content)
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or str(Path(folder) / "model")
        if args.model is None:
            pretrain(config.base, config.prompt, Path(model))
        for precision in ("float32", "bfloat16"):
            update = {"precision": precision, "learning_rate": LEARNING_RATE, "warmup_steps": 1}
            training = config.training.model_copy(update=update)
            changed = config.model_copy(update={"training": training})
            trainer = make_trainer(changed, model, "bon_offpolicy_exact", ITERATIONS, BATCHES, [by_length])
            trainer.train()
            for entry in trainer.state.log_history:
                if "ratio_min" in entry:
                    extremes = f"ratios {entry['ratio_min']:.4f} to {entry['ratio_max']:.4f}"
                    print(f"{precision:9s} step {entry['step']}  {extremes}  clamped {entry['clamped_share']:.1%}")


if __name__ == "__main__":
    main()
