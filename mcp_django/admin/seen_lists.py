"""The lists that one caller is served, and why the rest is not on them.

They come from the handlers that serve everybody, through a connection in this process, and the
reasons from the policy that hides. Functions of the site run no further than its permissions:
nobody else's rows are fetched here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from django.utils.translation import gettext as _

from mcp_django import __version__
from mcp_django.admin.seen_viewpoint import Viewpoint
from mcp_django.admin.seen_words import needs_in_words, reasons_in_words
from mcp_django.core.catalog import Offered, Server
from mcp_django.core.component import Component
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.execution.call import Awaiting, Invocation, Listening
from mcp_django.execution.handlers.resources import FIXED, Book, are_shown
from mcp_django.execution.pipeline import respond
from mcp_django.execution.policy import barriers, hindrances
from mcp_django.management.facts import estimated_tokens
from mcp_django.models import PromptText
from mcp_django.protocol import envelope
from mcp_django.protocol.revisions import Revision
from mcp_django.server import MCPServer
from mcp_django.transports.memory import MemoryConnection

logger = logging.getLogger("mcp_django")

CLIENT = {"name": "admin", "version": __version__}
# The four lists: the kind of component, the method, its member, and what identifies an entry.
LISTS = (
    ("tool", "tools/list", "tools", "name"),
    ("resource", "resources/list", "resources", "uri"),
    ("resource template", "resources/templates/list", "resourceTemplates", "uriTemplate"),
    ("prompt", "prompts/list", "prompts", "name"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One entry of a list, and what a call of it would still need."""

    key: str
    title: str
    entry: str
    size: int
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """One component that is not on the list."""

    key: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One list; ``rows`` are the templates whose own entries follow when a client asks."""

    kind: str
    label: str
    shown: tuple[Shown, ...]
    hidden: tuple[Hidden, ...]
    rows: tuple[str, ...] = ()
    error: str = ""

    @property
    def size(self) -> int:
        """What the entries take, about."""
        return sum(one.size for one in self.shown)


class OnePage:
    """A server as it is at this moment, whose lists have one page."""

    page_size = 1_000_000

    def __init__(self, server: MCPServer) -> None:
        server.refresh(is_list=True)
        self._server = server
        self.offered = server.offered
        self.available = server.available

    def refresh(self, *, is_list: bool = False) -> None:
        """It stays as it is, so that lists and reasons are of the same moment."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a caller sees: nothing at all for the reasons of ``closed``, or the lists."""

    closed: tuple[str, ...]
    kinds: tuple[Kind, ...] = ()
    instructions: int = 0

    @property
    def size(self) -> int:
        """What a client takes in that loads everything."""
        return self.instructions + sum(one.size for one in self.kinds)


def sight(server: MCPServer, viewpoint: Viewpoint) -> Sight:
    """What a server shows to somebody."""
    still = OnePage(server)
    closed = _closed(still, viewpoint)
    if closed:
        return Sight(closed=closed)
    served = _Served(still, viewpoint)
    off = _switched_off(server.name)
    instructions = server.instructions
    return Sight(
        closed=(),
        kinds=tuple(
            _kind(still, viewpoint, served, *one, off=off if one[0] == "prompt" else ())
            for one in LISTS
        ),
        instructions=estimated_tokens(instructions) if instructions else 0,
    )


def _closed(server: OnePage, viewpoint: Viewpoint) -> tuple[str, ...]:
    principal = viewpoint.principal
    if viewpoint.is_inactive:
        return (_("The user is not active, so none of his credentials is taken."),)
    try:
        return tuple(reasons_in_words(barriers(cast(Server, server), principal), principal))
    except (AccessRefused, MCPError) as exc:
        return (str(exc),)
    except Exception:
        # The site's own permission, which would answer a client with an error.
        logger.exception("A permission of the server %r failed.", server._server.name)
        return (_("A permission of the server failed; the log says why."),)


class _Served:
    """The answers of the list methods to one client."""

    def __init__(self, server: OnePage, viewpoint: Viewpoint) -> None:
        self._revision = viewpoint.revision
        self._connection = MemoryConnection(
            cast(Server, server), viewpoint.principal, origin="admin"
        )
        if not self._revision.stateless:
            self._connection.open(_initialize(self._revision))

    def entries(self, method: str, member: str) -> tuple[list[Mapping[str, Any]], str]:
        """The entries of a list, and what went wrong if anything did."""
        opened = self._connection.open(_request(method, self._revision))
        if isinstance(opened, Invocation):
            opened = _without_rows(opened)
        assert not isinstance(opened, (Listening, Awaiting))
        if "error" not in opened:
            return list(opened["result"][member]), ""
        # A server without such components does not have the method.
        is_missing = opened["error"]["code"] == -32601
        return [], "" if is_missing else str(opened["error"]["message"])


def _without_rows(call: Invocation) -> dict[str, Any]:
    """The fixed resources of a list that goes on with rows, which only their owner is to see."""
    book: Book = call.arguments["book"]
    found, _after = book.part(call.context(), FIXED, None, OnePage.page_size)
    result = {"resources": found, "ttlMs": 0, "cacheScope": "private"}
    decoded: dict[str, Any] = json.loads(respond(call.incoming, result))
    return decoded


def _kind(
    server: OnePage,
    viewpoint: Viewpoint,
    served: _Served,
    kind: str,
    method: str,
    member: str,
    identity: str,
    *,
    off: tuple[str, ...],
) -> Kind:
    entries, error = served.entries(method, member)
    offered: Mapping[str, Component] = server.offered.tables[kind]
    shown = [_shown(one, offered[one[identity]], viewpoint) for one in entries]
    if viewpoint.biggest_first:
        shown.sort(key=lambda one: -one.size)
    keys = {one.key for one in shown}
    rows = _row_templates(server.offered, viewpoint) if kind == "resource" else ()
    return Kind(
        kind=kind,
        label=_label(kind),
        shown=tuple(shown),
        hidden=tuple(_hidden(server, viewpoint, kind, keys, off)),
        rows=rows,
        error=error,
    )


def _label(kind: str) -> str:
    return {
        "tool": _("Tools"),
        "resource": _("Resources"),
        "resource template": _("Resource templates"),
        "prompt": _("Prompts"),
    }[kind]


def _shown(entry: Mapping[str, Any], component: Component, viewpoint: Viewpoint) -> Shown:
    return Shown(
        key=component.key,
        title=str(component.title),
        entry=json.dumps(entry, indent=2, ensure_ascii=False),
        size=estimated_tokens(entry),
        needs=tuple(needs_in_words(component, viewpoint.principal)),
    )


def _hidden(
    server: OnePage, viewpoint: Viewpoint, kind: str, shown: set[str], off: tuple[str, ...]
) -> Iterator[Hidden]:
    offered = server.offered.tables[kind]
    available = server.available.tables[kind]
    switched_off = (_("It is switched off in the admin."),)
    for key in sorted({*available, *off} - shown):
        component = offered.get(key)
        if component is None:
            yield Hidden(key=key, reasons=switched_off)
            continue
        found = hindrances(viewpoint.principal, component)
        yield Hidden(key=key, reasons=tuple(reasons_in_words(found, viewpoint.principal)))


def _row_templates(offered: Offered, viewpoint: Viewpoint) -> tuple[str, ...]:
    """The templates whose rows a client is given in its list of resources."""
    templates = offered.templates.values()
    shown = [one for one in templates if one.entries is not None]
    return tuple(sorted(one.key for one in shown if are_shown(viewpoint.principal, one)))


def _switched_off(server: str) -> tuple[str, ...]:
    """The written prompts that are not even there while they are switched off: one query."""
    rows = PromptText._default_manager.filter(server=server, is_enabled=False)
    return tuple(rows.values_list("name", flat=True))


def _request(method: str, revision: Revision) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
    if revision.stateless:
        message["params"]["_meta"] = {
            envelope.PROTOCOL_VERSION: revision.version,
            envelope.CLIENT_INFO: CLIENT,
            envelope.CLIENT_CAPABILITIES: {},
        }
    return message


def _initialize(revision: Revision) -> dict[str, Any]:
    params = {"protocolVersion": revision.version, "capabilities": {}, "clientInfo": CLIENT}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
