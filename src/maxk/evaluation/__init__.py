"""From samples and verdicts to scores."""
