"""``manage.py mcp SUBCOMMAND``: everything that is done with MCP from a shell."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from mcp_django.management.subcommands import token


class Command(BaseCommand):
    """Finds the subcommand and hands the rest to it."""

    help = "Manage this site's MCP servers."

    def add_arguments(self, parser: CommandParser) -> None:
        """Let each subcommand describe its own arguments."""
        subcommands = parser.add_subparsers(title="subcommands", dest="subcommand", required=True)
        token.add_arguments(subcommands)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the chosen subcommand."""
        options["run"](self, options)
