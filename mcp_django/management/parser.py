"""The parser of a subcommand, which takes ``key=value`` before and after options alike."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandParser

PAIR = re.compile(r"[^-=][^=]*=", re.DOTALL)


class SubcommandParser(CommandParser):
    """Collects the ``key=value`` words of a repeatable positional from wherever they stand.

    Python 3.11 gives such a positional the words before the first option and refuses the rest, so
    ``mcp call add --user ada a=1`` would need another order.
    """

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
