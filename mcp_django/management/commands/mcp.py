"""``manage.py mcp SUBCOMMAND``: the management command, and its argument parser."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache, partial
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
from mcp_django.tenants import (
    ThreadContextError,
    as_tenant,
    capture_tenant,
    run_as_tenant,
    thread_context,
)

SUBCOMMANDS = (list_components, inspect, call, connect, contract, doctor, token, stdio, prune)


class Command(BaseCommand):
    """Dispatches to the subcommands."""

    help = "Manage this site's MCP servers."
    # ``call_command("mcp", ..., stdin=...)`` sets the input that client requests are answered from.
    stealth_options = ("stdin",)

    def __init__(self, stdout: Any = None, stderr: Any = None, **options: Any) -> None:
        out: Any = OutputStream(stdout or sys.stdout)
        err: Any = OutputStream(stderr or sys.stderr, optional=True)
        super().__init__(out, err, **options)

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the parser of each subcommand."""
        parser.set_defaults(tenant="")
        subcommands = parser.add_subparsers(
            title="subcommands", dest="subcommand", required=True, parser_class=_SubcommandParser
        )
        for module in SUBCOMMANDS:
            module.add_arguments(subcommands)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command; any exception becomes a ``CommandError`` of one sentence here.

        Raises:
            CommandError: the command failed.
        """
        if options.get("stdout"):
            options["stdout"] = OutputStream(options["stdout"])
        if options.get("stderr"):
            options["stderr"] = OutputStream(options["stderr"], optional=True)
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()
        except (Exception, KeyboardInterrupt) as exc:
            # Flush so that earlier output appears before the error; report only the first error.
            with suppress(CommandError):
                self.stdout.flush()
            if isinstance(exc, CommandError):
                raise
            raise command_error(exc) from exc
        return output

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the chosen subcommand.

        Raises:
            CommandError: the standard output is closed, so nothing is run.
            ImproperlyConfigured: ``MCP_DJANGO`` is not valid.
        """
        # The subcommands skip the system checks, so invalid settings are reported here.
        get_settings()
        serves = options["subcommand"] == "stdio"
        if not serves and getattr(self.stdout, "is_closed", False):
            raise CommandError("The standard output is closed, so nothing was run.")
        # ``mcp stdio`` keeps its log, since exceptions of components are reported there.
        keeps_log = serves or options["traceback"] or options["verbosity"] > 1
        with (
            nullcontext() if keeps_log else without_tracebacks(self.stderr),
            as_tenant(_tenant_of(options)),
        ):
            try:
                run_as_tenant(partial(options["run"], self, options))
            finally:
                # Otherwise the rest is written at process exit, where errors are only logged.
                call_log.flush()


def _tenant_of(options: Mapping[str, Any]) -> str:
    """Return the tenant that the command works for, empty on a site without tenants.

    Raises:
        CommandError: the tenant is needed but not known, or the site has no tenants.
    """
    tenant = str(options["tenant"])
    if thread_context() is None:
        if tenant:
            raise CommandError(
                f"--tenant {tenant!r} names a tenant, and the site has none: MCP_DJANGO"
                '["THREAD_CONTEXT"] is not set.'
            )
        return ""
    if not tenant:
        try:
            tenant = capture_tenant(None)
        except ThreadContextError:
            if options.get("needs_tenant"):
                raise
    if not tenant and options.get("needs_tenant"):
        raise CommandError("Name the tenant that the command works for, with --tenant NAME.")
    return tenant


PAIR = re.compile(r"[^-=][^=]*=", re.DOTALL)


@cache
def django_options() -> CommandParser:
    """Return a parser of the options that every Django command has, for argparse's ``parents``.

    All subcommands share it, because these options take most of the time to build a parser.
    An option that is omitted after the subcommand keeps its value from before the subcommand.
    """
    parser = BaseCommand().create_parser("", "", add_help=False)
    parser.add_argument(
        "--tenant",
        metavar="NAME",
        help="The tenant to work for, as THREAD_CONTEXT names it (default: that of the process).",
    )
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return parser


class _SubcommandParser(CommandParser):
    """Parser that also accepts Django's own options, and ``key=value`` arguments in any position.

    Python 3.11 assigns a repeatable positional only the words before the first option and rejects
    the rest, so ``mcp call add --user ada a=1`` would fail.
    """

    def __init__(self, **options: Any) -> None:
        # Lists Django's options last in the help, as other commands do.
        options.setdefault("formatter_class", DjangoHelpFormatter)
        super().__init__(parents=[django_options()], **options)

    def parse_known_args(  # type: ignore[override]  # the overloads of the stubs
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments, and add leftover ``key=value`` words to ``pairs``."""
        options, extras = super().parse_known_args(args, namespace)
        pairs = getattr(options, "pairs", None)
        if pairs is None:
            return options, extras
        options.pairs = [*pairs, *(word for word in extras if PAIR.match(word))]
        return options, [word for word in extras if not PAIR.match(word)]
