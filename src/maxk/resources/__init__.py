"""What a job takes of its machine: GPUs and main memory."""
