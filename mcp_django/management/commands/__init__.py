"""One command, ``mcp``; what it can do is in ``subcommands``."""
