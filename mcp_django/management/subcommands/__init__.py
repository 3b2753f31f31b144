"""The subcommands of ``manage.py mcp``, one file each."""
