"""``mcp prune``: delete sessions, streams and other rows that are past their retention time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.core.management.base import BaseCommand, CommandError

from mcp_django.auth.principal import find_user_by_name, key_of
from mcp_django.storage.cleanup import anonymize_user, delete_expired, delete_tenant
from mcp_django.tenants import DjangoTenants, thread_context


def add_arguments(subcommands: Any) -> None:
    """Add the parser of the subcommand."""
    parser = subcommands.add_parser(
        "prune",
        help="Delete rows that are past MCP_DJANGO['RETENTION']. Serving processes do this, too.",
    )
    parser.add_argument(
        "--forget",
        metavar="USER",
        help="Instead, remove this user's name, arguments and other personal data from the call "
        "log and the approvals, and delete the user's tasks. Also works for deleted users.",
    )
    parser.add_argument(
        "--forget-tenant",
        metavar="NAME",
        help="Instead, delete every row of a tenant that does not exist any more: a later tenant "
        "of this name must not find its tokens and decisions.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Delete the rows that the options select, and print the number of rows of each kind."""
    counts: dict[str, int] = {}
    if options["forget_tenant"] is not None:
        counts = _forget_tenant(options["forget_tenant"])
    elif options["forget"] is not None:
        counts = _forget_user(options["forget"])
    else:
        delete_expired(counts.__setitem__)
    if options["json"]:
        command.stdout.write(json.dumps(counts))
        return
    for name, count in counts.items():
        command.stdout.write(f"{count:>8}  {name}")


def _forget_tenant(tenant: str) -> dict[str, int]:
    """Delete the rows of a tenant, and return the number of rows of each kind.

    Raises:
        CommandError: the name is empty, the site has no tenants, or the tenant still exists.
    """
    context = thread_context()
    if context is None:
        raise CommandError("--forget-tenant names a tenant, and the site has none.")
    if not tenant:
        raise CommandError("--forget-tenant needs the name of a tenant.")
    if isinstance(context, DjangoTenants):
        try:
            with context.enter(tenant):
                pass
        except ObjectDoesNotExist:
            pass
        else:
            raise CommandError(f"The tenant {tenant!r} exists; delete it first.")
    return delete_tenant(tenant)


def _forget_user(username: str) -> dict[str, int]:
    """Remove a user's personal data, and return the number of rows of each kind.

    Raises:
        CommandError: no user has this name, and no call or approval was made under it.
    """
    user = find_user_by_name(username)
    key = None if user is None else key_of(user)
    counts = anonymize_user(username, key=key)
    if key is None and not any(counts.values()):
        raise CommandError(
            f"No user named {username!r}, and no call or approval of a deleted user with this name."
        )
    return counts
