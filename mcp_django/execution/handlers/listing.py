"""Pagination of lists, and the description of a server: ``server/discover``, capabilities, icons.

All list methods share one implementation: the components that the caller may see, in pages.
``server/discover`` (2026-07-28) returns the server's versions, capabilities and instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, TypeVar
from urllib.parse import urljoin

import msgspec

from mcp_django.auth import authentication
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.core.component import Component
from mcp_django.execution.call import CURSOR_SIGNER, Call
from mcp_django.execution.policy import depends_on_caller, is_visible
from mcp_django.execution.task_plan import has_task_tools
from mcp_django.protocol import revisions
from mcp_django.protocol.content import Icon
from mcp_django.protocol.cursors import Pager, Position, items_after
from mcp_django.protocol.errors import SKILLS, TASKS, UI
from mcp_django.protocol.jsonrpc import read_params

C = TypeVar("C", bound=Component)
_by_key = attrgetter("key")


class ListParams(msgspec.Struct):
    """Parameters of the list methods."""

    cursor: str | None = None


def list_page(
    call: Call,
    components: Iterable[C],
    *,
    member: str,
    describe: Callable[[C], dict[str, Any]],
    is_private: bool = False,
) -> dict[str, Any]:
    """Return one page of the components that the caller may see, sorted, with cache hints."""
    known = tuple(components)
    shown = [one for one in known if is_visible(call.principal, one)]
    pager, after = open_list(call)
    entries, cursor = pager.page(items_after(shown, after, _by_key), _by_key)
    private = is_private or any(depends_on_caller(call.server, one) for one in known)
    result: dict[str, Any] = {
        member: [describe(one) for one in entries],
        "ttlMs": 0,
        # For the whole list, since it must be the same on every page.
        "cacheScope": "private" if private else "public",
    }
    return with_next_cursor(result, cursor)


def open_list(call: Call, *part: str) -> tuple[Pager, Position | None]:
    """Return the pager of a list method, and the position in the request's cursor.

    The cursors are bound to the caller, so that they reveal nothing of what another caller may
    see. ``part`` names one of several lists of the method.

    Raises:
        InvalidParams: the cursor is not valid for this list.
    """
    server, request = call.server, call.request
    scope = ":".join((server.name, request.method, call.principal.key, *part))
    pager = Pager(scope, server.page_size, CURSOR_SIGNER)
    return pager, pager.position(read_params(request.params, ListParams).cursor)


def with_next_cursor(result: dict[str, Any], cursor: str | None) -> dict[str, Any]:
    """Return the result of a list method with the cursor of the next page, if there is one."""
    return result if cursor is None else {**result, "nextCursor": cursor}


def common_members(component: Component) -> dict[str, Any]:
    """Return the members that all listed components have in common, where they are declared."""
    members: dict[str, Any] = {"name": component.name}
    # Converted here, so that a lazy translation uses the language of the request.
    if component.title:
        members["title"] = str(component.title)
    if component.description:
        members["description"] = str(component.description)
    if icons := public_icons(component.icons):
        members["icons"] = icons
    if component.meta:
        members["_meta"] = dict(component.meta)
    return members


# ``server/discover`` and capabilities -------------------------------------------------------------


def capabilities(server: Server, *, can_stream: bool) -> dict[str, Any]:
    """Return the server's capabilities, derived from its components.

    A kind without components has no capability, and its methods answer "method not found".
    ``listChanged`` needs a stream. Resource contents embedded in a result count as resources, even
    if no resource is listed.
    """
    catalog = server.catalog
    changes = {"listChanged": True} if can_stream else {}
    found: dict[str, Any] = {}
    if "tools" in catalog.capabilities:
        found["tools"] = dict(changes)
    if "resources" in catalog.capabilities:
        hears = can_stream and any(one.subscribe for one in catalog.readable_components())
        found["resources"] = {**changes, **({"subscribe": True} if hears else {})}
    if "prompts" in catalog.capabilities:
        found["prompts"] = dict(changes)
    if "completions" in catalog.capabilities:
        found["completions"] = {}
    if found and can_stream:
        found["logging"] = {}
    if extensions := server_extensions(server):
        found["extensions"] = extensions
    return found


def discover(call: Call) -> dict[str, Any]:
    """Return the result of ``server/discover``."""
    server = call.server
    result: dict[str, Any] = {
        "supportedVersions": revisions.advertised_versions(
            server.protocol_versions, requested=call.revision.version
        ),
        "capabilities": capabilities(server, can_stream=call.can_stream),
        "ttlMs": 0,
        "cacheScope": "private",
    }
    if server.instructions:
        result["instructions"] = server.instructions
    return result


# Icons --------------------------------------------------------------------------------------------


def public_icons(icons: Iterable[Icon]) -> list[dict[str, Any]]:
    """Return the icons that a client may fetch, with absolute URLs.

    A path of this site is joined to ``BASE_URL``. An icon whose URL is neither https nor data is
    left out, since clients must reject it.
    """
    absolute = [{**icon.to_wire(), "src": _absolute(icon.src)} for icon in icons]
    return [icon for icon in absolute if icon["src"].lower().startswith(("https:", "data:"))]


def _absolute(src: str) -> str:
    return urljoin(get_settings().base_url, src) if src.startswith("/") else src


# Extensions ---------------------------------------------------------------------------------------


def server_extensions(server: Server) -> dict[str, dict[str, Any]]:
    """Return the extensions that the server uses, by name, with their settings."""
    found = {**authentication.authorization_extensions(server.auth)}
    if any(tool.ui is not None for tool in server.catalog.tools.values()):
        found[UI] = {}
    if server.catalog.skills:
        found[SKILLS] = {"directoryRead": True}
    if has_task_tools(server.catalog):
        found[TASKS] = {}
    return found
