"""``manage.py mcp SUBCOMMAND``: everything that is done with MCP from a shell."""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from mcp_django.conf import get_settings
from mcp_django.management.command_errors import command_error, without_tracebacks
from mcp_django.management.parser import SubcommandParser
from mcp_django.management.streams import OutputStream
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
from mcp_django.storage.call_rows import call_log


class Command(BaseCommand):
    """Finds the subcommand and hands the rest to it."""

    help = "Manage this site's MCP servers."
    # Whoever calls the command from code may say where answers to questions come from.
    stealth_options = ("stdin",)

    def __init__(self, stdout: Any = None, stderr: Any = None, **options: Any) -> None:
        out: Any = OutputStream(stdout or sys.stdout)
        err: Any = OutputStream(stderr or sys.stderr, optional=True)
        super().__init__(out, err, **options)

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

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run, and end in a sentence: this is the one place that turns exceptions into one.

        Raises:
            CommandError: anything at all went wrong.
        """
        if options.get("stdout"):
            options["stdout"] = OutputStream(options["stdout"])
        if options.get("stderr"):
            options["stderr"] = OutputStream(options["stderr"], optional=True)
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()
        except (Exception, KeyboardInterrupt) as exc:
            # What was printed before is shown before the error; if it cannot be, one error is told.
            with suppress(CommandError):
                self.stdout.flush()
            if isinstance(exc, CommandError):
                raise
            raise command_error(exc) from exc
        return output

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the chosen subcommand.

        Raises:
            CommandError: nothing could be printed; then nothing is run either.
            ImproperlyConfigured: ``MCP_DJANGO`` is wrong.
        """
        # The subcommands skip the system checks, one of which says what is wrong elsewhere.
        get_settings()
        serves = options["subcommand"] == "stdio"
        if not serves and getattr(self.stdout, "is_closed", False):
            raise CommandError("The standard output is closed, so nothing was run.")
        # A server's log is where the bugs of its components are told.
        keeps_log = serves or options["traceback"] or options["verbosity"] > 1
        with nullcontext() if keeps_log else without_tracebacks(self.stderr):
            try:
                options["run"](self, options)
            finally:
                # Else the end of the process writes what is left, and logs what goes wrong.
                call_log.flush()
