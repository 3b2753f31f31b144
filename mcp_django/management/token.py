"""``mcp token create|list|revoke``: manage access tokens for clients without a browser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from mcp_django.auth import security_log
from mcp_django.components.component import SCOPE_PATTERN
from mcp_django.conf import REGISTER_SCOPE
from mcp_django.management.lookups import find_servers, find_user
from mcp_django.management.text_output import format_table, output_width
from mcp_django.models import AccessToken, AuthEvent
from mcp_django.models.tokens import validate_networks
from mcp_django.server import known_scopes
from mcp_django.tenants import of_tenant

# A century, so that the expiry time stays below datetime.max.
MAX_DAYS = 36_525
# Recorded in the security log as the author of a created or revoked token.
COMMAND = "manage.py mcp token"


def add_arguments(subcommands: Any) -> None:
    """Add the parsers of the subcommand and its actions."""
    parser = subcommands.add_parser("token", help="Create, list and revoke access tokens.")
    actions = parser.add_subparsers(title="actions", dest="action", required=True)

    make = actions.add_parser("create", help="Create a token and print it; it is not shown again.")
    make.add_argument("user", help="The username of the user that the token authenticates.")
    make.add_argument("--name", default="command line", help="A name that says what it is for.")
    repeatable = {
        "scope": "A scope of the token; repeatable. Without one, the token gives access to what "
        "requires no scope.",
        "server": "A server that the token is valid for; repeatable.",
        "network": "An IP address or CIDR range that the token is valid from; repeatable.",
    }
    for name, text in repeatable.items():
        make.add_argument(f"--{name}", action="append", default=[], dest=f"{name}s", help=text)
    until = make.add_mutually_exclusive_group()
    until.add_argument("--days", type=int, help="Days until it expires (default: never).")
    until.add_argument(
        "--expires", help="The time of expiry, as 2027-01-31 or 2027-01-31T12:00+00:00."
    )
    make.set_defaults(run=_create)

    show = actions.add_parser("list", help="List tokens, without their secrets.")
    show.add_argument("--user", help="Only the tokens of this user.")
    show.set_defaults(run=_list_tokens)

    end = actions.add_parser("revoke", help="Revoke a token immediately.")
    end.add_argument("id", type=int, help="The token's id, as shown by list.")
    end.set_defaults(run=_revoke)

    for action in (make, show, end):
        action.add_argument("--json", action="store_true", help="Print JSON.")
        # No system checks: their output would be mixed with the token.
        action.set_defaults(skip_checks=True)


def _create(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Create a token and print its plaintext, which is not stored."""
    token = AccessToken(name=options["name"])
    try:
        token.clean_fields(exclude=["user", "digest", "hint"])
    except ValidationError as exc:
        raise CommandError(f"--name: {' '.join(exc.messages)}") from None
    for scope in options["scopes"]:
        if not SCOPE_PATTERN.fullmatch(scope):
            raise CommandError(
                f"--scope {scope!r} is not a valid scope; repeat the option for several scopes, "
                "each without spaces or quotes."
            )
    for server in options["servers"]:
        find_servers(server)
    try:
        validate_networks(options["networks"])
    except ValidationError as exc:
        raise CommandError(f"--network: {' '.join(exc.messages)}") from None
    token, plaintext = AccessToken.objects.issue(
        find_user(options["user"]),
        name=options["name"],
        scopes=options["scopes"],
        servers=options["servers"],
        networks=options["networks"],
        expires=_expiry(options["days"], options["expires"]),
    )
    security_log.record_token_event(AuthEvent.Kind.ISSUE, token, by=COMMAND)
    for scope in sorted({*options["scopes"]} - known_scopes() - {REGISTER_SCOPE}):
        command.stderr.write(
            f"No server or component requires the scope {scope!r}, and MCP_DJANGO['SCOPES'] does "
            "not contain it.",
            style_func=str,
        )
    if options["json"]:
        command.stdout.write(json.dumps({**_describe_token(token), "token": plaintext}))
        return
    command.stdout.write(plaintext)
    command.stderr.write(f"Token {token.pk} for {options['user']}; it is not shown again.")


def _expiry(days: int | None, text: str | None) -> datetime | None:
    """Return the time of expiry: after a number of days, or at the time of an ISO 8601 text.

    The text is in the site's time zone unless it has an offset. A date without a time means the end
    of that day.

    Raises:
        CommandError: the number or the text is not valid, or the time is in the past.
    """
    if days is not None:
        if not 1 <= days <= MAX_DAYS:
            raise CommandError(f"--days {days} must be from 1 to {MAX_DAYS}.")
        return timezone.now() + timedelta(days=days)
    if text is None:
        return None
    try:
        expires = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--expires {text!r} is not a valid time; write 2027-01-31, or an ISO 8601 time."
        ) from None
    if len(text) == len("2027-01-31"):
        expires = datetime.combine(expires, time.max)
    if settings.USE_TZ and timezone.is_naive(expires):
        expires = timezone.make_aware(expires)
    if not settings.USE_TZ and timezone.is_aware(expires):
        expires = timezone.make_naive(expires)
    if expires <= timezone.now():
        raise CommandError(f"--expires {text!r} is in the past.")
    return expires


def _list_tokens(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print the tokens without their secrets."""
    tokens = of_tenant(AccessToken).select_related("user")
    if options["user"]:
        tokens = tokens.filter(user=find_user(options["user"]))
    described = [_describe_token(token) for token in tokens]
    if options["json"]:
        command.stdout.write(json.dumps(described))
        return
    rows = [
        (
            str(row["id"]),
            f"…{row['hint']}",
            row["state"],
            row["user"],
            " ".join(row["scopes"]) or "-",
            f"{token.expires_at:%Y-%m-%d}" if token.expires_at else "-",
            row["name"],
        )
        for row, token in zip(described, tokens, strict=True)
    ]
    if rows:
        rows.insert(0, ("id", "token", "state", "user", "scopes", "expires", "name"))
        command.stdout.write(format_table(rows, width=output_width(command.stdout)))
    else:
        command.stderr.write("No tokens.", style_func=str)


def _revoke(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Revoke a token; revoking a revoked token has no effect."""
    try:
        token = of_tenant(AccessToken).select_related("user").get(pk=options["id"])
    except AccessToken.DoesNotExist:
        raise CommandError(
            f"No token has the id {options['id']}; see manage.py mcp token list."
        ) from None
    if token.revoked_at is None:
        token.revoke()
        security_log.record_token_event(AuthEvent.Kind.REVOKE, token, by=COMMAND)
    if options["json"]:
        command.stdout.write(json.dumps(_describe_token(token)))
    else:
        command.stdout.write(f"Revoked {token}.")


def _describe_token(token: AccessToken) -> dict[str, Any]:
    times = {
        "created": token.created_at,
        "expires": token.expires_at,
        "last_used": token.last_used_at,
        "revoked": token.revoked_at,
    }
    return {
        "id": token.pk,
        "hint": token.hint,
        "name": token.name,
        "user": token.user.get_username(),
        "scopes": token.scopes,
        "servers": token.servers,
        "networks": token.networks,
        "state": _state(token),
        **{name: time.isoformat() if time else None for name, time in times.items()},
    }


def _state(token: AccessToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if not token.user.is_active:
        return "inactive"
    return "usable" if token.is_usable else "expired"
