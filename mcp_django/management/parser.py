"""The parser of a subcommand, which takes ``key=value`` and Django's own options anywhere."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandParser, DjangoHelpFormatter

PAIR = re.compile(r"[^-=][^=]*=", re.DOTALL)


def django_options() -> CommandParser:
    """Return a parser of the options that every command has, as ``parents`` of argparse wants it.

    What is left out here keeps the value that stands before the subcommand.
    """
    parser = BaseCommand().create_parser("", "", add_help=False)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return parser


class SubcommandParser(CommandParser):
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
