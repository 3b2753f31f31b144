"""The management command ``mcp``; its subcommands are modules of ``mcp_django.management``."""
