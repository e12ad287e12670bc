"""Turns samples and verdicts into scores and comparisons."""
