"""Make the first calls of an installation, so that its call log has records to show."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from django.core.management import call_command
from django.core.management.base import CommandError, OutputWrapper

from demo_project.desk.accounts import DESK, GUEST, TRAINEE, Account
from mcp_django.models import Call

FirstCall: TypeAlias = tuple[Account, str, tuple[str, ...]]

# The account, name and arguments of each call. The last two fail: an airport that does not exist,
# and a user without permission.
FIRST_CALLS: tuple[FirstCall, ...] = (
    (GUEST, "nearest_airports", ("latitude=51.5074", "longitude=-0.1278", "count=3")),
    (GUEST, "great_circle_distance", ("origin=JFK", "destination=LHR")),
    (GUEST, "airport_map", ("place=IS",)),
    (GUEST, "summarize_country", ("country=NZ",)),
    (GUEST, "shift_briefing", ("airport=WLG", "shift=early")),
    (GUEST, "airports://countries/FJ", ()),
    (DESK, "list_notices", ()),
    (GUEST, "great_circle_distance", ("origin=JFK", "destination=XXX")),
    (TRAINEE, "publish_notice", ("airport=WLG", "title=Wind", "text=Gusts of 50 knots.")),
)


def make_first_calls(stdout: OutputWrapper) -> None:
    """Call some components as the demo's accounts, unless the call log already has records."""
    if Call.objects.exists():
        return
    stdout.write("Making some first calls; the call log in the admin shows them.")
    with _log_warnings_only():
        _run_calls(FIRST_CALLS)


def _run_calls(calls: Iterable[FirstCall]) -> None:
    for account, name, arguments in calls:
        server = "default" if account is GUEST else "staff"
        output = io.StringIO()
        options = ("--user", account.username, "--server", server, "--no-input")
        try:
            call_command("mcp", "call", name, *arguments, *options, stdout=output, stderr=output)
        except (CommandError, SystemExit):
            # The log has rejected and failed calls as well.
            continue


@contextmanager
def _log_warnings_only() -> Iterator[None]:
    # Two calls fail on purpose; their log lines would look as if the demo did not work.
    logger = logging.getLogger("mcp_django")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
