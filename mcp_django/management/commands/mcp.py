"""``manage.py mcp SUBCOMMAND``: the management command of MCP, and its argument parser."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    DjangoHelpFormatter,
)

from mcp_django.conf import get_settings
from mcp_django.management import (
    call,
    connect,
    contract,
    doctor,
    inspect,
    list as list_components,
    prune,
    stdio,
    token,
)
from mcp_django.management.command_errors import command_error, without_tracebacks
from mcp_django.management.text_output import OutputStream
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
            title="subcommands", dest="subcommand", required=True, parser_class=_SubcommandParser
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


# Parser of a subcommand ---------------------------------------------------------------------------

PAIR = re.compile(r"[^-=][^=]*=", re.DOTALL)


def django_options() -> CommandParser:
    """Return a parser of the options that every command has, as ``parents`` of argparse wants it.

    What is left out here keeps the value that stands before the subcommand.
    """
    parser = BaseCommand().create_parser("", "", add_help=False)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return parser


class _SubcommandParser(CommandParser):
    """Takes Django's own options too, and ``key=value`` words of a repeatable positional anywhere.

    Python 3.11 gives such a positional the words before the first option and refuses the rest, so
    ``mcp call add --user ada a=1`` would need another order.
    """

    def __init__(self, **options: Any) -> None:
        # Django's options are last in the help, as in that of other commands.
        options.setdefault("formatter_class", DjangoHelpFormatter)
        super().__init__(parents=[django_options()], **options)

    def parse_known_args(  # type: ignore[override]  # the overloads of the stubs
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[Any, list[str]]:
        """Parse, and take up the words that were left over."""
        found, extras = super().parse_known_args(args, namespace)
        pairs = getattr(found, "pairs", None)
        if pairs is None:
            return found, extras
        found.pairs = [*pairs, *(word for word in extras if PAIR.match(word))]
        return found, [word for word in extras if not PAIR.match(word)]
