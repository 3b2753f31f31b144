"""The first calls of an installation, made for real, so that its log has something to show."""

from __future__ import annotations

import io

from django.core.management import call_command
from django.core.management.base import CommandError, OutputWrapper

from demo_project.desk.accounts import DESK, GUEST, TRAINEE, Account
from mcp_django.models import Call

# Who calls what, and in which words. The last ones are no good: an airport that does not exist,
# and somebody who may not.
FIRST_CALLS: tuple[tuple[Account, str, tuple[str, ...]], ...] = (
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
    """Call a few things as the accounts would, where nothing was called yet."""
    if Call.objects.exists():
        return
    stdout.write("Making the first calls, two of which fail on purpose.")
    for account, name, arguments in FIRST_CALLS:
        server = "default" if account is GUEST else "staff"
        printed = io.StringIO()
        options = ("--user", account.username, "--server", server, "--no-input")
        try:
            call_command("mcp", "call", name, *arguments, *options, stdout=printed, stderr=printed)
        except (CommandError, SystemExit):
            # What is refused or fails is in the log as well.
            continue
