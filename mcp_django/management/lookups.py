"""Look up servers, components, users and revisions for the commands, and describe them.

The error for an unknown name suggests similar ones. Commands are run by the site owner, so these
errors may reveal everything that exists.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from django.conf import ENVIRONMENT_VARIABLE, settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from mcp_django.auth.permissions import parse_permissions
from mcp_django.auth.principal import (
    Principal,
    anonymous_principal,
    find_user_by_name,
    principal_for,
)
from mcp_django.components.component import Component
from mcp_django.components.resource import ReadableComponent, SkillFile
from mcp_django.components.tool import Tool
from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy
from mcp_django.execution.handlers.entries import (
    KINDS,
    ComponentType,
    component_type,
    estimate_tokens,
)
from mcp_django.execution.policy import Reason, Use, Verdict, explain, explain_connection
from mcp_django.hosts.configuration import LOCAL, server_paths
from mcp_django.management.command_errors import TRACEBACK_HINT, describe_exception, safe_str
from mcp_django.protocol.revisions import LATEST, REVISIONS, Revision
from mcp_django.protocol.text import similar
from mcp_django.server import MCPServer, all_servers

SIMILAR_USERS = 200
PLURALS = tuple(kind.plural for kind in KINDS)


def suggest_similar(name: str, names: Iterable[str]) -> str:
    """Return a hint with the most similar of the names; empty if none is similar."""
    similar_names = similar(name, names)
    return f" Did you mean {' or '.join(similar_names)}?" if similar_names else ""


def known_name(what: str, name: str, choices: Iterable[str]) -> str:
    """Return the name if it is one of the choices.

    Raises:
        CommandError: the name is not one of them; the text suggests similar names.
    """
    names = list(choices)
    if name not in names:
        raise CommandError(
            f"No {what} named {name!r}.{suggest_similar(name, names)} "
            f"The {what}s are: {', '.join(names) or 'none'}."
        )
    return name


def add_component_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that distinguish components with the same name: ``--server``, ``--kind``."""
    parser.add_argument(
        "--server", metavar="NAME", help="The server, if several have a component of this name."
    )
    parser.add_argument(
        "--kind",
        type=kind_argument,
        metavar="KIND",
        help=f"The kind, if components of several kinds have this name: {', '.join(PLURALS)}.",
    )


def find_servers(name: str | None) -> list[MCPServer]:
    """Return all servers with their overrides, the default first, or only the one of this name.

    Raises:
        CommandError: no server has this name.
    """
    servers = declared_servers(name)
    for server in servers:
        try:
            server.refresh(is_list=True)
        except Busy:
            # Without a database, use what code declares. The site owner runs the command, so
            # showing components without their overrides is safe.
            server.overrides.reset()
    return servers


def declared_servers(name: str | None) -> list[MCPServer]:
    """Return the servers as code declares them, without querying overrides from the database.

    Raises:
        CommandError: no server has this name, or the URLconf cannot be imported.
    """
    # A server may be declared in the URLconf that mounts it, which nothing else imports.
    if urlconf := getattr(settings, "ROOT_URLCONF", None):
        try:
            import_module(urlconf)
        except Exception as exc:
            raise CommandError(
                f"ROOT_URLCONF {urlconf!r} cannot be imported: "
                f"{describe_exception(exc)}\n{TRACEBACK_HINT}"
            ) from exc
    servers = sorted(all_servers(), key=lambda server: (not server.is_default, server.name))
    if name is None:
        return servers
    known_name("server", name, [server.name for server in servers])
    return [server for server in servers if server.name == name]


def find_server(name: str | None) -> MCPServer:
    """Return the server of this name; without a name, the default or the only one.

    Raises:
        CommandError: the server does not exist, or a name is needed to choose one.
    """
    servers = find_servers(name)
    if not servers:
        raise CommandError("This site has no MCP server; add path('mcp', mcp.urls) to urls.py.")
    if len(servers) > 1 and not servers[0].is_default:
        names = ", ".join(server.name for server in servers)
        raise CommandError(f"There are several servers; choose one with --server: {names}.")
    return servers[0]


def find_component(
    name: str, *, server: str | None = None, kind: ComponentType | None = None
) -> tuple[MCPServer, Component]:
    """Return the component with a name or URI, and the first server that has it.

    Raises:
        CommandError: the component does not exist, or the name is ambiguous.
    """
    servers = find_servers(server)
    for candidate in servers:
        components = _matching_components(candidate, name, kind)
        if len(components) == 1:
            return candidate, components[0]
        if components:
            kinds = {component_type(component).plural for component in components}
            problem = f"{name!r} is the name of several"
            if len(kinds) == 1:
                keys = ", ".join(component.key for component in components)
                raise CommandError(f"{problem} {kinds.pop()}; use one of: {keys}.")
            ways = "".join(
                f"\n  --kind {component_type(component).plural:<10} {component.key}"
                for component in components
            )
            raise CommandError(f"{problem} components on server {candidate.name!r}. Choose:{ways}")
    names = dict.fromkeys(
        text
        for candidate in servers
        for component in _components_of(candidate, kind)
        for text in (component.key, component.name)
    )
    what = kind.name if kind else "component"
    where = f" on server {server!r}" if server else ""
    raise CommandError(
        f"There is no {what} {name!r}{where}.{suggest_similar(name, names)} See: manage.py mcp "
        "list."
    )


def _matching_components(
    server: MCPServer, name: str, kind: ComponentType | None
) -> list[Component]:
    candidates = _components_of(server, kind)
    components = [component for component in candidates if component.key == name]
    components = components or [component for component in candidates if component.name == name]
    components = components or [component for component in candidates if name in component.aliases]
    if components or ":" not in name:
        return components
    readable = server.catalog.find_resource(name) or server.declared_catalog.find_resource(name)
    return [readable[0]] if readable and kind in (None, component_type(readable[0])) else []


def find_user(username: str) -> Any:
    """Return the user with this username.

    Raises:
        CommandError: the user does not exist.
    """
    user = find_user_by_name(username)
    if user is None:
        # Usernames with the same first two letters; there may be too many users to list all.
        users = get_user_model()
        field = users.USERNAME_FIELD
        alike = users._default_manager.filter(**{f"{field}__istartswith": username[:2]})
        names = [str(name) for name in alike.values_list(field, flat=True)[:SIMILAR_USERS]]
        raise CommandError(f"No user named {username!r}.{suggest_similar(username, names)}")
    return user


def find_principal(username: str | None) -> Principal:
    """Return the principal of a user, not restricted by scopes; anonymous without a username.

    Raises:
        CommandError: the user does not exist or is inactive.
    """
    if username is None:
        return anonymous_principal()
    user = find_user(username)
    if not user.is_active:
        raise CommandError(f"The user {username!r} is inactive; servers reject inactive users.")
    return principal_for(user)


def find_revision(version: str) -> Revision:
    """Return the protocol revision of this version.

    Raises:
        CommandError: the revision does not exist.
    """
    return REVISIONS[known_name("revision", version, REVISIONS)]


DISABLED = "disabled in the admin"


def _components_of(server: MCPServer, kind: ComponentType | None = None) -> list[Component]:
    """Return all components of a kind, with overrides applied; disabled ones as declared."""
    catalog = server.catalog.by_kind
    return [
        catalog[component.kind].get(component.key, component)
        for component in server.declared_catalog
        if kind in (None, component_type(component))
    ]


def list_components(server: MCPServer, kind: ComponentType) -> list[Component]:
    """Return the components of a kind, in the order of the server's lists."""
    return sorted(_components_of(server, kind), key=lambda component: component.key)


def is_in_catalog(server: MCPServer, component: Component) -> bool:
    """Return whether a component is in the catalog, that is, enabled."""
    return component.key in server.catalog.by_kind[component.kind]


def server_permissions(server: MCPServer) -> tuple[object, ...]:
    """Return the permissions of a server, declared in code and added in the admin."""
    return (server.permission, *server.catalog.extra_permissions)


def kind_argument(text: str) -> ComponentType:
    """Return the kind for a command-line value, which is its plural or singular name.

    Raises:
        ArgumentTypeError: the value is not a kind.
    """
    for kind in KINDS:
        if text in (kind.plural, kind.name):
            return kind
    raise argparse.ArgumentTypeError(f"{text!r} is not a valid kind; use {', '.join(PLURALS)}")


def flags(component: Component) -> list[str]:
    """Return the special properties of a component, a few words each."""
    hints = component.hints if isinstance(component, Tool) else {}
    marks = {
        "read-only": hints.get("readOnlyHint"),
        "destructive": hints.get("destructiveHint"),
        "slow": component.slow,
        "skill": isinstance(component, SkillFile) and component.frontmatter is not None,
    }
    rules = {
        "needs": " ".join(component.needs),
        "permission": " ".join(permission_names(component.permission)),
        "scopes": " ".join(component.scopes),
        "rate": ", ".join(map(str, component.rates)),
        "approval": _approval_of(component),
    }
    return [
        *(word for word, holds in marks.items() if holds),
        *(f"{word} {text}" for word, text in rules.items() if text),
    ]


def _approval_of(component: Component) -> str:
    """Return who has to approve each call: ``"caller"``, ``"staff"`` or ``""``."""
    return component.approval if isinstance(component, Tool) else ""


def component_summary(component: Component) -> dict[str, Any]:
    """Return the summary of a component for JSON output."""
    kind = component_type(component)
    address = {"uri": component.key} if isinstance(component, ReadableComponent) else {}
    return {
        "kind": kind.name,
        "name": component.name,
        **address,
        "aliases": list(component.aliases),
        "title": str(component.title),
        "hints": component.hints if isinstance(component, Tool) else {},
        "slow": component.slow,
        "needs": list(component.needs),
        "permission": permission_names(component.permission),
        "scopes": list(component.scopes),
        "rate": [str(rate) for rate in component.rates],
        "approval": _approval_of(component),
        "estimated_tokens": estimate_tokens(kind.wire(component, LATEST)),
    }


def endpoint_url(server: MCPServer) -> str:
    """Return the absolute URL of a server for clients.

    Raises:
        CommandError: the URLconf has no URL without arguments for the server.
    """
    paths = server_paths(server)
    if not paths:
        raise CommandError(
            f"The URLconf has no URL without arguments for server {server.name!r}; pass its URL "
            "with --url, or mount the server: path('mcp', server.urls)."
        )
    return urljoin(get_settings().base_url or LOCAL, paths[0])


def check_url(url: str) -> str:
    """Return the URL if it is an absolute HTTP URL.

    Raises:
        CommandError: the URL is not absolute, or is not an HTTP URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError(f"{url!r} is not an HTTP URL; write https://example.com/mcp.")
    return url


def stdio_command(*, server: str | None, user: str | None) -> tuple[str, ...]:
    """Return the command that starts ``mcp stdio``, with absolute paths.

    It runs this Python with this site's ``manage.py``, or with ``-m django``.
    """
    script = Path(sys.argv[0])
    if script.suffix == ".py" and script.name != "__main__.py":
        entry_point = [str(script.resolve()), "mcp"]
    else:
        # Started by python -m django, a test runner or an installed script instead of manage.py.
        entry_point = ["-m", "django", "mcp", "--pythonpath", str(Path.cwd())]
    chosen = [*(["--server", server] if server else []), *(["--user", user] if user else [])]
    return (sys.executable, *entry_point, "stdio", *chosen)


def environment() -> dict[str, str]:
    """Return the environment variables for ``mcp stdio``: the current settings module."""
    module = os.environ.get(ENVIRONMENT_VARIABLE)
    return {ENVIRONMENT_VARIABLE: module} if module else {}


# Access rules in words ----------------------------------------------------------------------------


def permission_names(declared: object) -> list[str]:
    """Return the names of the permission classes that were declared as a permission."""
    return [_permission_name(permission) for permission in parse_permissions(declared)]


def _permission_name(permission: object) -> str:
    return safe_str(permission) or type(permission).__name__


def check_connection(server: MCPServer, principal: Principal) -> Verdict:
    """Return whether a caller may connect to a server.

    Raises:
        CommandError: the first permission that denies access raised an exception; callers get it.
    """
    verdict = explain_connection(server, principal)
    _raise_failure(server, verdict.reasons[:1])
    return verdict


def check_access(
    server: MCPServer, component: Component, principal: Principal, *, use: Use
) -> Verdict:
    """Return whether a caller may see or use a component of a server.

    Raises:
        CommandError: as for ``check_connection``; for a call, any permission raised an exception.
    """
    own = Verdict(reasons=(Reason(kind="disabled", principal=principal, component=component),))
    if is_in_catalog(server, component):
        own = explain(principal, component, use=use)
    reasons = (*check_connection(server, principal).reasons, *own.reasons)
    if use == "call":
        _raise_failure(server, reasons)
    return Verdict(reasons=reasons)


def _raise_failure(server: MCPServer, reasons: Iterable[Reason]) -> None:
    for reason in reasons:
        if reason.failure:
            owner = reason.component or f"server {server.name!r}"
            raise CommandError(
                f"The permission {_permission_name(reason.permission)} of the {owner} raised "
                f"{describe_exception(reason.failure)}\n{TRACEBACK_HINT}"
            ) from reason.failure


def denial_names(verdict: Verdict) -> list[str]:
    """Return the names of what denies access: the permissions, or the admin."""
    if any(reason.kind == "disabled" for reason in verdict.reasons):
        return ["the admin, where it is disabled"]
    names = []
    for reason in verdict.reasons:
        name = _permission_name(reason.permission)
        if reason.failure:
            name += f", which raised {describe_exception(reason.failure)}"
        names.append(name)
    return list(dict.fromkeys(names))


def audience_text(server: MCPServer, component: Component) -> str:
    """Return a sentence that says who may see and use a component."""
    of_server = permission_names(server_permissions(server))
    needed = list(dict.fromkeys(of_server + permission_names(component.permission)))
    needed = [name for name in needed if name != "AllowAny"]
    who = f"callers with {' and '.join(needed)}" if needed else "everyone"
    if not component.scopes:
        return f"Visible to and usable by {who}."
    scopes = " ".join(component.scopes)
    if get_settings().list_filter == "scopes":
        return f"Visible to and usable by {who}, with the scopes: {scopes}."
    return f"Visible to {who}; usable with the scopes: {scopes}."
