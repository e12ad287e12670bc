"""OpenRLHF's reward function for code; pass this file's path:

    --reward.remote_url "$(python -c 'import maxk.integrations.openrlhf as m; print(m.__file__)')" \\
    --data.label_key tests

OpenRLHF 0.11.2 has no hook for advantages. Its `dr_grpo` centres rewards by their group's mean and scales no further.
It catches what this function raises and logs it, at the level INFO, as "Failed to fetch reward from remote RM": look
for this line if a reward is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from maxk.errors import described
from maxk.integrations.code_reward import score

# OpenRLHF decodes special tokens, too: behind a closing fence, the token that ended generation would keep it open.
# There may be several: the end of a turn, the end of the text, padding.
_END_TOKEN = re.compile(r"(?:<[|｜][^<>\s]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>|<turn\|>|<pad>|\[PAD\])\s*\Z")
_LONGEST = 64  # characters of a token and a few of white space


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
    """Rewards of prompt + completion texts (`queries`); a label holds the tests as `code_reward` takes them.

    Raises ValueError for a query that does not hold its prompt.
    """
    import torch

    completions = [_completion(query, prompt) for query, prompt in zip(queries, prompts, strict=True)]
    scores = [score(completion, tests) for completion, tests in zip(completions, labels, strict=True)]
    rewards = torch.tensor([one["score"] for one in scores])
    ungraded = torch.tensor([one["ungraded"] for one in scores])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"ungraded": ungraded}}


def _completion(query: str, prompt: str) -> str:
    """What follows the prompt, without the special tokens that ended it.

    The first occurrence is the prompt: the completion may repeat it.
    """
    _, found, completion = query.partition(prompt) if prompt else ("", "", query)
    if found != prompt:
        raise ValueError(
            f"the prompt {described(prompt)} is not in the query {described(query)}: check that --data.max_len does "
            "not cut prompts, and that the tokenizer decodes a prompt to the text that it encoded"
        )
    return _without_end_tokens(completion)


def _without_end_tokens(text: str) -> str:
    """The text without the special tokens at its end; looks at each place once, however many there are."""
    end = len(text.rstrip())
    while found := _END_TOKEN.search(text, max(0, end - _LONGEST), end):
        end = found.start()
    return text[:end]
