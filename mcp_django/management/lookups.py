"""What a command line names, found among what the site has; a name that is not there names others.

Whoever runs a command owns the site, so these errors tell of everything that exists.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from mcp_django.auth.principal import Principal, anonymous, principal_for, user_named
from mcp_django.core.component import Component
from mcp_django.management.command_errors import SEE_WHERE, name_and_text
from mcp_django.management.kinds import PLURALS, Kind, kind_argument, kind_of
from mcp_django.management.offering import components_of, look_up
from mcp_django.protocol.revisions import REVISIONS, Revision
from mcp_django.server import MCPServer, all_servers

NEAREST = 3
SIMILAR_USERS = 200


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the known names that are most like this one; empty when none is."""
    found = difflib.get_close_matches(name, list(known), n=NEAREST)
    return f" Did you mean {' or '.join(found)}?" if found else ""


def add_place(parser: argparse.ArgumentParser) -> None:
    """Take what tells apart components of one name: their server and their kind."""
    parser.add_argument("--server", metavar="NAME", help="The server, where several have it.")
    parser.add_argument(
        "--kind",
        type=kind_argument,
        metavar="KIND",
        help=f"The kind, where several have the name: {', '.join(PLURALS)}.",
    )


def find_servers(name: str | None) -> list[MCPServer]:
    """Every server, the default one first, or only the one of this name.

    Raises:
        CommandError: there is none of this name.
    """
    found = declared_servers(name)
    for server in found:
        look_up(server)
    return found


def declared_servers(name: str | None) -> list[MCPServer]:
    """The same as code declares them: no database is asked what the admin says.

    Raises:
        CommandError: there is none of this name, or the URLconf cannot be imported.
    """
    # A server may be declared where it is mounted, and nothing else imports that.
    if urlconf := getattr(settings, "ROOT_URLCONF", None):
        try:
            import_module(urlconf)
        except Exception as exc:
            raise CommandError(
                f"ROOT_URLCONF {urlconf!r} cannot be imported: {name_and_text(exc)}\n{SEE_WHERE}"
            ) from exc
    known = sorted(all_servers(), key=lambda server: (not server.is_default, server.name))
    if name is None:
        return known
    found = [server for server in known if server.name == name]
    if not found:
        names = [server.name for server in known]
        raise CommandError(
            f"There is no server {name!r}.{nearest(name, names)} "
            f"The servers are: {', '.join(names) or 'none'}."
        )
    return found


def find_server(name: str | None) -> MCPServer:
    """The one server meant: of this name, the default one, or the only one.

    Raises:
        CommandError: there is none, or it is not clear which.
    """
    found = find_servers(name)
    if not found:
        raise CommandError("This site has no MCP server; write path('mcp', mcp.urls) in urls.py.")
    if len(found) > 1 and not found[0].is_default:
        names = ", ".join(server.name for server in found)
        raise CommandError(f"Which server? Choose with --server: {names}.")
    return found[0]


def find_component(
    name: str, *, server: str | None = None, kind: Kind | None = None
) -> tuple[MCPServer, Component]:
    """The component that a name or URI means, on the first server that has one.

    Raises:
        CommandError: there is none, or the name means several.
    """
    servers = find_servers(server)
    for candidate in servers:
        found = _matches(candidate, name, kind)
        if len(found) > 1:
            raise _ambiguous(candidate, name, found)
        if found:
            return candidate, found[0]
    known = dict.fromkeys(
        text
        for candidate in servers
        for one in components_of(candidate)
        if kind in (None, kind_of(one))
        for text in (one.key, one.name)
    )
    what = kind.name if kind else "component"
    where = f" on server {server!r}" if server else ""
    raise CommandError(
        f"There is no {what} {name!r}{where}.{nearest(name, known)} See: manage.py mcp list."
    )


def _matches(server: MCPServer, name: str, kind: Kind | None) -> list[Component]:
    candidates = [one for one in components_of(server) if kind in (None, kind_of(one))]
    found = [one for one in candidates if one.key == name]
    found = found or [one for one in candidates if one.name == name]
    found = found or [one for one in candidates if name in one.aliases]
    if found or ":" not in name:
        return found
    readable = server.offered.find_resource(name) or server.available.find_resource(name)
    return [readable[0]] if readable and kind in (None, kind_of(readable[0])) else []


def _ambiguous(server: MCPServer, name: str, found: Sequence[Component]) -> CommandError:
    kinds = {kind_of(one).plural for one in found}
    if len(kinds) == 1:
        keys = ", ".join(one.key for one in found)
        return CommandError(f"{name!r} is the name of several {kinds.pop()}; give one of: {keys}.")
    ways = "".join(f"\n  --kind {kind_of(one).plural:<10} {one.key}" for one in found)
    return CommandError(f"{name!r} is several things on server {server.name!r}. Choose:{ways}")


def find_user(username: str) -> Any:
    """The user of this name.

    Raises:
        CommandError: there is none.
    """
    user = user_named(username)
    if user is None:
        hint = nearest(username, _similar_users(username))
        raise CommandError(f"There is no user {username!r}.{hint}")
    return user


def _similar_users(username: str) -> list[str]:
    """Names that begin alike: there may be millions of others."""
    users = get_user_model()
    field = users.USERNAME_FIELD
    alike = users._default_manager.filter(**{f"{field}__istartswith": username[:2]})
    return [str(name) for name in alike.values_list(field, flat=True)[:SIMILAR_USERS]]


def find_principal(username: str | None) -> Principal:
    """The caller that a user is, with a credential that no scope narrows; nobody without a name.

    Raises:
        CommandError: there is no such user, or the site lets the user in no more.
    """
    if username is None:
        return anonymous()
    user = find_user(username)
    if not user.is_active:
        raise CommandError(f"The user {username!r} is inactive, and no server lets such users in.")
    return principal_for(user)


def find_revision(version: str) -> Revision:
    """The revision of this version.

    Raises:
        CommandError: there is none.
    """
    if version not in REVISIONS:
        raise CommandError(
            f"There is no revision {version!r}.{nearest(version, REVISIONS)} "
            f"The revisions are: {', '.join(REVISIONS)}."
        )
    return REVISIONS[version]
