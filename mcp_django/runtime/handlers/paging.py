"""What the four list methods share: the caller's view of a table, cut into pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from mcp_django.core.component import Component
from mcp_django.protocol.cursors import paginate
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.runtime.icons import published
from mcp_django.runtime.incoming import Incoming
from mcp_django.runtime.policy import depends_on_caller, visible
from mcp_django.runtime.signer import CURSORS

C = TypeVar("C", bound=Component)


class ListParams(msgspec.Struct):
    """Parameters of every list method."""

    cursor: str | None = None


def page(
    incoming: Incoming,
    components: Iterable[C],
    *,
    member: str,
    describe: Callable[[C], dict[str, Any]],
    is_private: bool = False,
) -> dict[str, Any]:
    """One page of what the caller may see, in a stable order (TOOL-3), with its cache hints."""
    params = read_params(incoming.request.params, ListParams)
    known = tuple(components)
    shown = [one for one in known if visible(incoming.principal, one)]
    shown.sort(key=lambda one: one.key)
    entries, cursor = paginate(
        shown,
        cursor=params.cursor,
        size=incoming.server.page_size,
        scope=scope_of(incoming),
        key=lambda one: one.key,
        signer=CURSORS,
    )
    private = is_private or any(depends_on_caller(incoming.server, one) for one in known)
    result: dict[str, Any] = {
        member: [describe(one) for one in entries],
        "ttlMs": 0,
        # Of the whole list and not of the page, so that it is the same on each (PAG-5).
        "cacheScope": "private" if private else "public",
    }
    if cursor is not None:
        result["nextCursor"] = cursor
    return result


def scope_of(incoming: Incoming) -> str:
    """What the cursors of a list are good for.

    Bound to the caller too: a cursor is no way to learn of another's view (PAG-4).
    """
    return f"{incoming.server.name}:{incoming.request.method}:{incoming.principal.key}"


def common(component: Component) -> dict[str, Any]:
    """The members that every listed component has, where the author gave them."""
    members: dict[str, Any] = {"name": component.name}
    # As text only now: a lazy translation speaks the language of the request.
    if component.title:
        members["title"] = str(component.title)
    if component.description:
        members["description"] = str(component.description)
    if icons := published(component.icons):
        members["icons"] = icons
    if component.meta:
        members["_meta"] = dict(component.meta)
    return members
