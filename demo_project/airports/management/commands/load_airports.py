"""`manage.py load_airports`: the reference data, from the installed `airportsdata`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from demo_project.airports.loading import load
from demo_project.airports.progress import ProgressBar


class Command(BaseCommand):
    help = "Adds the countries and airports that the database lacks."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--limit", type=int, help="Stop after this many airports, for a small database."
        )

    def handle(self, *, limit: int | None, **options: Any) -> None:
        loaded = load(report=_start_bar, limit=limit)
        self.stdout.write(
            f"Airports: {loaded.airports:,} added, {loaded.already_there:,} already there."
        )


def _start_bar(total: int) -> Callable[[int], None]:
    return ProgressBar(sys.stderr, label="Loading airports", total=total).advance
