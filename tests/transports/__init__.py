"""The mounts: the same answers from each of them, and what HTTP asks of all."""
