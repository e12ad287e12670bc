"""How far rounding alone moves the ratios of whole completions: training at a learning rate that changes no weight.

    python benchmarks/rounding.py                                           # the pocket base model, on the CPU
    python benchmarks/rounding.py --config config/mini.yaml --model PATH    # on a GPU: 256 tokens in 16 bits

In float32 the ratios stay 1. In bfloat16 they differ from 1, which is noise in off-policy weights (docs/objectives.md).
"""

from __future__ import annotations

import argparse

from trainer import by_length, experiment, make_trainer

ITERATIONS, BATCHES, LEARNING_RATE = 3, 2, 1e-8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", help="an experiment laid over the default, for its training settings and problems")
    parser.add_argument("--model", help="a model folder; by default the pocket base model is pretrained")
    args = parser.parse_args()
    with experiment(args.config, args.model) as (config, model):
        for precision in ("float32", "bfloat16"):
            update = {"precision": precision, "learning_rate": LEARNING_RATE, "warmup_steps": 1}
            training = config.training.model_copy(update=update)
            changed = config.model_copy(update={"training": training})
            trainer = make_trainer(changed, model, "bon_offpolicy_exact", ITERATIONS, BATCHES, [by_length])
            trainer.train()
            for entry in trainer.state.log_history:
                if "ratio_min" in entry:
                    extremes = f"ratios {entry['ratio_min']:.4f} to {entry['ratio_max']:.4f}"
                    print(f"{precision:9s} step {entry['step']}  {extremes}  clamped {entry['clip_fraction']:.1%}")


if __name__ == "__main__":
    main()
