"""Measures the rates of `config/rates.yaml` on one GPU: tokens generated and tokens trained per second.

Rates depend on the architecture, not on the weights, so the weights are random and nothing is downloaded. Generation
uses the transformers backend with one batch. vLLM is faster, so plans made from these rates err on the long side; they
also count a reference pass for every iteration on a generation batch, while only the first makes one.

    python benchmarks/rates.py 0.5b 7b
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

PROMPT, COMPLETION = 400, 256
SHAPES = {
    "0.5b": {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}
    | {"intermediate_size": 4864, "vocab_size": 151_936, "tie_word_embeddings": True},
    "7b": {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}
    | {"intermediate_size": 18_944, "vocab_size": 152_064, "tie_word_embeddings": False},
}


def seconds(work: Callable[[], Any]) -> float:
    """Time of the second call; the first warms up."""
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(name: str, generated: int, trained: int) -> dict[str, Any]:
    """Rates of an architecture; `generated` and `trained` are sequences per batch."""
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(Qwen2Config(**SHAPES[name]), dtype=torch.bfloat16)
    prompts = torch.randint(1000, (generated, PROMPT), device="cuda")
    sequences = torch.randint(1000, (trained, PROMPT + COMPLETION), device="cuda")

    def generate() -> None:
        model.generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0, pad_token_id=0,
            min_new_tokens=COMPLETION, max_new_tokens=COMPLETION,
        )  # fmt: skip

    def update() -> None:
        """One forward pass without gradients (reference policy), one with, and its backward pass."""
        with torch.no_grad():
            model(sequences, logits_to_keep=COMPLETION)
        logits = model(sequences, logits_to_keep=COMPLETION).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), sequences[:, -COMPLETION:].flatten()).backward()

    model.eval()
    generation = seconds(generate)
    model.train()
    model.gradient_checkpointing_enable()
    training = seconds(update)
    return {
        "architecture": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "generated_tokens_per_s": round(generated * COMPLETION / generation),
        "generated_sequences": generated,
        "trained_tokens_per_s": round(trained * (PROMPT + COMPLETION) / training),
        "trained_sequences": trained,
        "memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architectures", nargs="+", choices=SHAPES)
    parser.add_argument("--generated", type=int, default=256, help="sequences generated at once")
    parser.add_argument("--trained", type=int, default=8, help="sequences of a forward and backward pass")
    args = parser.parse_args()
    for name in args.architectures:
        print(json.dumps(measure(name, args.generated, args.trained)), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
