"""Adapters to other trainers and evaluation tools, one module each (guide: docs/integrations.md).

A module imports its tool only if the tool must hear of it. What they share is in `groups` (advantages of a flat batch)
and `code_reward` (rewards of programs by their tests).
"""
