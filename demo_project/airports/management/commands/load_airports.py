"""`manage.py load_airports`: load the reference data of the installed `airportsdata` package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from demo_project.airports.loading import load_airports
from demo_project.airports.progress import ProgressBar


class Command(BaseCommand):
    help = "Adds the countries and airports that are missing from the database."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--limit", type=int, help="Stop after this many airports, for a small database."
        )

    def handle(self, *, limit: int | None, **options: Any) -> None:
        loaded = load_airports(report=_start_bar, limit=limit)
        self.stdout.write(
            f"Airports: {loaded.airports:,} added, {loaded.existing:,} already there."
        )


def _start_bar(total: int) -> Callable[[int], None]:
    return ProgressBar(sys.stderr, label="Loading airports", total=total).advance
