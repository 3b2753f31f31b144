"""Checks of what OAuth clients need: scopes that exist, URLs that are found, rules that run."""

from __future__ import annotations

import difflib
import inspect
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, reverse

from mcp_django.auth.backends import BaseBackend, get_backend
from mcp_django.auth.challenges import ROUTE
from mcp_django.auth.endpoints import canonical
from mcp_django.auth.permissions import find_rule
from mcp_django.checks.site import check_backends
from mcp_django.conf import get_settings
from mcp_django.server import MCPServer, all_servers


def check_scopes(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E010: a server needs a scope that the site's tokens cannot have. W010: a component does.

    W013: a scope that there is not covers others, or is covered.
    """
    if not _is_served():
        return []
    servers = [server for server in all_servers() if "oauth" in server.auth]
    found = [message for server in servers for message in _scope_problems(server)]
    return [*found, *_implied()] if servers else []


def _implied() -> Iterable[CheckMessage]:
    settings = get_settings()
    implies = settings.scope_implies or {}
    named = dict.fromkeys(one for broad, narrow in implies.items() for one in (broad, *narrow))
    for scope in named:
        if scope not in settings.scopes:
            yield checks.Warning(
                f"MCP_DJANGO['SCOPE_IMPLIES'] names the scope {scope!r}, which SCOPES does not "
                "have, so no OAuth client can get it.",
                hint=_hint(scope, settings.scopes),
                id="mcp_django.W013",
            )


def _scope_problems(server: MCPServer) -> Iterable[CheckMessage]:
    scopes = get_settings().scopes
    for scope in server.scopes:
        if scope not in scopes:
            yield Error(
                f"The server {server.name!r} needs the scope {scope!r}, which SCOPES does not "
                "have, so no client can use it.",
                hint=_hint(scope, scopes),
                obj=server,
                id="mcp_django.E010",
            )
    needing: dict[str, list[str]] = defaultdict(list)
    for component in server:
        for scope in component.scopes:
            if scope not in scopes:
                needing[scope].append(str(component))
    for scope, components in needing.items():
        others = f" and {len(components) - 1} more need" if len(components) > 1 else " needs"
        yield checks.Warning(
            f"The {components[0]}{others} the scope {scope!r}, which SCOPES does not have, so no "
            "OAuth client can get it.",
            hint=_hint(scope, scopes),
            obj=server,
            id="mcp_django.W010",
        )


def _hint(scope: str, scopes: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(scope, scopes, n=1)
    asked = f"Did you mean {nearest[0]!r}? Else add" if nearest else "Add"
    return f"{asked} {scope!r}: 'What it lets a client do' to MCP_DJANGO['SCOPES']."


def check_resource_urls(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E011: two servers say the same URL, so a token for one would open the other."""
    named: dict[str, list[MCPServer]] = defaultdict(list)
    for server in all_servers():
        if server.resource_url:
            named[canonical(server.resource_url) or ""].append(server)
    return [
        Error(
            f"The servers {', '.join(repr(one.name) for one in servers)} have one resource_url, "
            f"{resource!r}.",
            hint="Give each server the URL of its own endpoint.",
            id="mcp_django.E011",
        )
        for resource, servers in named.items()
        if len(servers) > 1
    ]


def check_can_connect(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E012: the rule that says who may connect cannot be found, so nobody can."""
    path = get_settings().oauth.can_connect
    if not path:
        return []
    hint = "Write the dotted path of a function (user, server, client_id) -> bool."
    try:
        signature = inspect.signature(find_rule(path))
    except ImproperlyConfigured as exc:
        return [Error(str(exc), hint=hint, id="mcp_django.E012")]
    except ValueError:  # something of C, which has none
        return []
    try:
        signature.bind("user", "server", "client_id")
    except TypeError as exc:
        what = f"MCP_DJANGO['OAUTH']['CAN_CONNECT'] names {path!r}, which takes {signature}: {exc}."
        return [Error(what, hint=hint, id="mcp_django.E012")]
    return []


def check_metadata(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W011: tokens of another issuer are taken, and clients are not told where to get one."""
    if check_backends(app_configs) or _is_served():
        return []
    return [
        checks.Warning(
            f"The server {server.name!r} takes tokens of other issuers, and no client can find "
            "out which.",
            hint='Add path("", include("mcp_django.urls")) to the root URLconf.',
            obj=server,
            id="mcp_django.W011",
        )
        for server in all_servers()
        if any(_has_foreign_issuers(name) for name in server.auth)
    ]


def _has_foreign_issuers(name: str) -> bool:
    # The site's own authorization server has checks of its own.
    return name != "oauth" and type(get_backend(name)).issuers is not BaseBackend.issuers


def _is_served() -> bool:
    """Whether the URLconf has the metadata of the endpoints."""
    try:
        reverse(ROUTE)
    except NoReverseMatch:
        return False
    return True
