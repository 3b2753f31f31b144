"""``manage.py mcp SUBCOMMAND``: everything that is done with MCP from a shell."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, ProgrammingError

from mcp_django.conf import get_settings
from mcp_django.management.parser import SubcommandParser
from mcp_django.management.subcommands import (
    call,
    connect,
    contract,
    doctor,
    inspect,
    prune,
    stdio,
    token,
)
from mcp_django.management.subcommands import list as list_components


class Command(BaseCommand):
    """Finds the subcommand and hands the rest to it."""

    help = "Manage this site's MCP servers."
    # Whoever calls the command from code may say where answers to questions come from.
    stealth_options = ("stdin",)

    def add_arguments(self, parser: CommandParser) -> None:
        """Let each subcommand describe its own arguments."""
        subcommands = parser.add_subparsers(
            title="subcommands", dest="subcommand", required=True, parser_class=SubcommandParser
        )
        list_components.add_arguments(subcommands)
        inspect.add_arguments(subcommands)
        call.add_arguments(subcommands)
        connect.add_arguments(subcommands)
        contract.add_arguments(subcommands)
        doctor.add_arguments(subcommands)
        token.add_arguments(subcommands)
        stdio.add_arguments(subcommands)
        prune.add_arguments(subcommands)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the chosen subcommand.

        Raises:
            CommandError: ``MCP_DJANGO`` is wrong, or the database lacks tables.
        """
        try:
            # The subcommands skip the system checks, one of which says it elsewhere.
            get_settings()
        except ImproperlyConfigured as exc:
            raise CommandError(str(exc)) from exc
        try:
            options["run"](self, options)
        except (OperationalError, ProgrammingError) as exc:
            raise CommandError(f"{exc}. Did you run manage.py migrate?") from exc
