"""Walls: the kernel enforces a worker's zones on every process that runs on its behalf."""
