"""Adapters to other trainers and evaluation tools, one module each (guide: docs/integrations.md).

| module | what it offers the tool |
|---|---|
| `verl` | the advantage estimator `maxk`, registered by verl's plug-in mechanism; a reward function |
| `skyrl`, `rllm` | the same estimator, by `register` |
| `slime` | `--custom-reward-post-process-path` |
| `prime_rl` | the group scores of an algorithm class |
| `openrlhf` | a reward function |
| `verifiers` | a task with tests, and its reward |
| `inspect_ai` | the epochs reducer `maxk/max_at`; a scorer |

A module imports its tool only if the tool must hear of it. What they share is in `groups` (advantages of a flat batch)
and `code_reward` (the grader for callers of many threads).
"""
