"""Resources of a job: GPUs and main memory."""
