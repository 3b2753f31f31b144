"""Runs calls as tasks: which calls, in which thread or worker, and what clients get of them."""
