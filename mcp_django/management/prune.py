"""``mcp prune``: sweep up sessions, streams and the rest that nobody needs any more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mcp_django.auth.principal import key_of, user_named
from mcp_django.storage.cleanup import forget, prune


def add_arguments(subcommands: Any) -> None:
    """Describe the subcommand."""
    parser = subcommands.add_parser(
        "prune",
        help="Delete rows that are past MCP_DJANGO['RETENTION']. Serving processes do so as well.",
    )
    parser.add_argument(
        "--forget",
        metavar="USER",
        help="Instead, take a user's name, arguments and what else tells of a person out of the "
        "call log and the approvals, and delete his tasks; of a user who is deleted too.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Delete what is due, or forget somebody, and say how many rows of each kind that were."""
    found: dict[str, int] = {}
    if options["forget"] is None:
        prune(found.__setitem__)
    else:
        found = _forgotten(options["forget"])
    if options["json"]:
        command.stdout.write(json.dumps(found))
        return
    for name, count in found.items():
        command.stdout.write(f"{count:>8}  {name}")


def _forgotten(username: str) -> dict[str, int]:
    """Forget a user by name.

    Raises:
        CommandError: nobody is called so, and nobody was.
    """
    user = user_named(username)
    key = None if user is None else key_of(user)
    found = forget(username, key=key)
    if key is None and not any(found.values()):
        raise CommandError(f"There is no user {username!r}, and no call of one who was called so.")
    return found
