"""maxk: max@k objectives, a safe grader and unbiased evaluation, as one pipeline (arXiv 2510.23393)."""
