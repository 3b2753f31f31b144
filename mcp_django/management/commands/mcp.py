"""``manage.py mcp SUBCOMMAND``: everything that is done with MCP from a shell."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, ProgrammingError

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
        try:
            options["run"](self, options)
        except (OperationalError, ProgrammingError) as exc:
            raise CommandError(f"{exc}. Did you run manage.py migrate?") from exc
