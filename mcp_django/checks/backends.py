"""Checks of the authentication backends: what they lack, and what they take that never ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.backends import get_backend
from mcp_django.auth.backends.external import entries_for
from mcp_django.server import MCPServer, all_servers


def check_issuers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E013: a backend has no issuer to take tokens of, or a path names nothing."""
    settings = conf.get_settings()
    lists = {"jwt": settings.jwt, "introspection": settings.introspection}
    found: list[CheckMessage] = []
    for server in all_servers():
        found += [
            _nothing(
                f"The server {server.name!r} uses {name!r}, and no issuer is listed for it.", name
            )
            for name, entries in lists.items()
            if name in server.auth and not entries_for(entries, server.name)
        ]
    for key, path, kind in _paths(settings):
        problem = _path_problem(path, kind)
        if problem:
            what = f"{key} names {path!r}, {problem}."
            hint = f"Write the dotted path of a {kind} that exists."
            found.append(Error(what, hint=hint, id="mcp_django.E013"))
    return found


def check_entries(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W014: an issuer is listed for nobody, so its tokens are refused."""
    settings = conf.get_settings()
    found: list[CheckMessage] = []
    for name, entries in (("jwt", settings.jwt), ("introspection", settings.introspection)):
        using = {server.name for server in all_servers() if name in server.auth}
        for number, entry in enumerate(entries):
            if using.intersection(entry.servers or using):
                continue
            key = f"MCP_DJANGO[{name.upper()!r}][{number}]"
            whose = f", which is for {', '.join(map(repr, entry.servers))}" if entry.servers else ""
            named = ", ".join(map(repr, sorted(using)))
            found.append(
                checks.Warning(
                    f"No server takes the tokens of {key}{whose}.",
                    hint=f"Name servers that use {name!r} in SERVERS: {named}."
                    if using
                    else f"Add {name!r} to MCP_DJANGO['AUTH'], or to MCPServer(auth=[…]).",
                    id="mcp_django.W014",
                )
            )
    return found


def _nothing(what: str, name: str) -> Error:
    key = name.upper()
    hint = f"List one in MCP_DJANGO[{key!r}], or take {name!r} out of AUTH."
    return Error(what, hint=hint, id="mcp_django.E013")


def _path_problem(path: str, kind: str) -> str:
    try:
        found = import_string(path)
    except ImportError as exc:
        return f"which cannot be imported ({exc})"
    fits = isinstance(found, type) if kind == "class" else callable(found)
    return "" if fits else f"which is not a {kind}"


def _paths(settings: conf.Settings) -> Iterator[tuple[str, str, str]]:
    """The dotted paths of the settings: the key, the path, and what it has to name."""
    for key, entries in (("JWT", settings.jwt), ("INTROSPECTION", settings.introspection)):
        for number, entry in enumerate(entries):
            if entry.user:
                yield f"MCP_DJANGO[{key!r}][{number}]['USER']", entry.user, "function"
    for number, path in enumerate(settings.drf):
        yield f"MCP_DJANGO['DRF'][{number}]", path, "class"


def check_rest_tokens(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E014: tokens of the toolkit that nothing can look at; W012: tokens that never end."""
    if check_issuers(app_configs):
        return []
    found: list[CheckMessage] = []
    for server in all_servers():
        if "drf" in server.auth:
            found += _rest_tokens(server)
    return found


def _rest_tokens(server: MCPServer) -> list[CheckMessage]:
    try:
        get_backend("drf")
    except ImproperlyConfigured:  # E003 says so
        return []
    from mcp_django.auth.backends.drf import authentication_classes

    found: list[CheckMessage] = []
    for one in authentication_classes():
        bases = {f"{base.__module__}.{base.__qualname__}" for base in one.__mro__}
        if "rest_framework.authentication.TokenAuthentication" in bases:
            found.append(
                checks.Warning(
                    f"The server {server.name!r} takes tokens of {one.__name__}, which are stored "
                    "in plain text, never expire and have no scopes.",
                    hint="Put 'tokens' into AUTH, and make tokens: manage.py mcp token create.",
                    id="mcp_django.W012",
                )
            )
        is_toolkit = any(base.startswith("oauth2_provider.contrib.") for base in bases)
        if is_toolkit and not apps.is_installed("mcp_django.oauth"):
            found.append(
                Error(
                    f"The server {server.name!r} refuses the tokens of {one.__name__}: without "
                    "mcp_django.oauth nobody can tell what they were issued for.",
                    hint="Add 'mcp_django.oauth' to INSTALLED_APPS, or take the class out.",
                    id="mcp_django.E014",
                )
            )
    return found
