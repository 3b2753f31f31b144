"""A site of its own for commands that run in a process: its settings and its URLconf."""
