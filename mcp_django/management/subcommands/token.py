"""``mcp token create|list|revoke``: access tokens for clients that have no browser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from mcp_django.components.component import SCOPE
from mcp_django.models import AccessToken

# A century; further on, dates end.
MAX_DAYS = 36_525


def add_arguments(subcommands: Any) -> None:
    """Describe the subcommand and its actions."""
    parser = subcommands.add_parser("token", help="Create, list and revoke access tokens.")
    actions = parser.add_subparsers(title="actions", dest="action", required=True)

    make = actions.add_parser("create", help="Make a token and print it, once.")
    make.add_argument("user", help="The username of the user whom the token stands for.")
    make.add_argument("--name", default="command line", help="What the token is for.")
    make.add_argument("--scope", action="append", default=[], dest="scopes", help="Repeatable.")
    make.add_argument("--days", type=int, help="Days until it expires; never without.")
    make.set_defaults(run=create)

    show = actions.add_parser("list", help="List tokens; their secrets are not kept.")
    show.add_argument("--user", help="Only those of this user.")
    show.set_defaults(run=list_tokens)

    end = actions.add_parser("revoke", help="End a token at once.")
    end.add_argument("id", type=int, help="The number that list shows.")
    end.set_defaults(run=revoke)

    for action in (make, show, end):
        action.add_argument("--json", action="store_true", help="Print JSON.")


def create(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Make a token and print its plaintext, which is shown this once."""
    token = AccessToken(name=options["name"])
    try:
        token.clean_fields(exclude=["user", "digest", "hint"])
    except ValidationError as exc:
        raise CommandError(f"--name: {' '.join(exc.messages)}") from None
    for scope in options["scopes"]:
        if not SCOPE.fullmatch(scope):
            raise CommandError(f"--scope {scope!r}: one scope each time, without spaces or quotes.")
    token, plaintext = AccessToken.objects.issue(
        _user(options["user"]),
        name=options["name"],
        scopes=options["scopes"],
        expires=_expiry(options["days"]),
    )
    if options["json"]:
        command.stdout.write(json.dumps({**_described(token), "token": plaintext}))
        return
    command.stdout.write(plaintext)
    command.stderr.write(f"Token {token.pk} for {options['user']}; it is not shown again.")


def _expiry(days: int | None) -> datetime | None:
    if days is None:
        return None
    if not 1 <= days <= MAX_DAYS:
        raise CommandError(f"--days {days}: a token lives from 1 to {MAX_DAYS} days.")
    return timezone.now() + timedelta(days=days)


def list_tokens(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print the tokens without their secrets."""
    tokens = AccessToken.objects.select_related("user")
    if options["user"]:
        tokens = tokens.filter(user=_user(options["user"]))
    described = [_described(token) for token in tokens]
    if options["json"]:
        command.stdout.write(json.dumps(described))
        return
    for row in described:
        scopes = " ".join(row["scopes"]) or "-"
        command.stdout.write(
            f"{row['id']:>5}  …{row['hint']}  {row['state']:<8} {row['user']:<20} "
            f"{scopes:<20} {row['name']}"
        )


def revoke(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """End a token; one that is ended already stays so."""
    try:
        token = AccessToken.objects.select_related("user").get(pk=options["id"])
    except AccessToken.DoesNotExist:
        raise CommandError(f"There is no token {options['id']}; see mcp token list.") from None
    token.revoke()
    if options["json"]:
        command.stdout.write(json.dumps(_described(token)))
    else:
        command.stdout.write(f"Revoked {token}.")


def _described(token: AccessToken) -> dict[str, Any]:
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
        "state": _state(token),
        **{name: time.isoformat() if time else None for name, time in times.items()},
    }


def _state(token: AccessToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if not token.user.is_active:
        return "inactive"
    return "usable" if token.is_usable else "expired"


def _user(username: str) -> Any:
    users = get_user_model()
    try:
        return users._default_manager.get_by_natural_key(username)
    except users.DoesNotExist:
        raise CommandError(f"There is no user {username!r}.") from None
