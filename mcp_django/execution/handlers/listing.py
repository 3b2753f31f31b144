"""Pagination of lists, and the description of a server: ``server/discover``, capabilities, icons.

All list methods share one implementation: the components that the caller may see, in pages.
``server/discover`` (2026-07-28) returns the server's versions, capabilities and instructions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urljoin

import msgspec
from django.core.signing import BadSignature, Signer
from django.utils.translation import get_language

from mcp_django.auth import authentication
from mcp_django.auth.permissions import needs_only_account, parse_permissions
from mcp_django.components.catalog import Server
from mcp_django.components.component import Component
from mcp_django.conf import Settings, get_settings
from mcp_django.exceptions import InvalidParams
from mcp_django.execution.call import Call
from mcp_django.execution.policy import depends_on_caller, is_visible
from mcp_django.execution.task_support import has_task_tools
from mcp_django.process import at_fork
from mcp_django.protocol import revisions
from mcp_django.protocol.content import Icon
from mcp_django.protocol.cursors import Pager, Position, items_after
from mcp_django.protocol.errors import SKILLS, TASKS, UI
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.protocol.projection import encode_entries
from mcp_django.tenants import by_tenant


class _CursorSigner:
    """Signs the cursors of lists, with keys that rotate (``SECRET_KEY_FALLBACKS``)."""

    salt = "mcp_django.cursors"

    def sign(self, value: str) -> str:
        """Return the value with its signature."""
        return Signer(salt=self.salt).sign(value)

    def unsign(self, value: str) -> str:
        """Return the value without its signature.

        Raises:
            ValueError: the signature is invalid.
        """
        try:
            return Signer(salt=self.salt).unsign(value)
        except BadSignature as exc:
            raise ValueError("the signature is invalid") from exc


CURSOR_SIGNER = _CursorSigner()

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
    size: int | None = None,
) -> dict[str, Any]:
    """Return one page of the components that the caller may see, sorted, with cache hints.

    The page has at most ``size`` components, by default as many as ``max_page_bytes`` allows, since
    several clients read only the first page and never send its cursor (Kiro, Copilot CLI, Open
    WebUI, the Vercel AI SDK).
    """
    pager, after = open_list(call)
    key = _page_key(call, after)
    page = None if key is None else _pages.get(key)
    if page is None:
        all_components = tuple(components)
        caller = call.principal
        visible = [
            component
            for component in all_components
            if is_visible(caller, component) and not component.problem_for(caller)
        ]
        remaining = items_after(visible, after, _by_key)
        described = map(describe, remaining[:size])
        entries, count = encode_entries(
            call.request.method, described, call.revision, max_bytes=max_page_bytes()
        )
        page = _Page(
            entries=entries,
            # For the whole list, since it must be the same on every page.
            is_private=is_private
            or any(depends_on_caller(call.server, component) for component in all_components),
            last=remaining[count - 1].key if len(remaining) > count else None,
        )
        # The key depends on the schemas, some of which may have been built only now.
        key = None if key is None else _page_key(call, after)
        if key is not None:
            _pages.add(key, page)
    result: dict[str, Any] = {
        member: page.entries,
        "ttlMs": 0,
        "cacheScope": "private" if page.is_private else "public",
    }
    return with_next_cursor(result, None if page.last is None else pager.next([page.last]))


def max_page_bytes() -> float:
    """Return how many bytes the entries of a page may have, so that its event is not too large."""
    limit = get_settings().max_event_bytes
    # The rest is for the cursor, the server's identity and the event itself.
    return math.inf if limit is None else limit * 15 // 16


def open_list(call: Call, *part: str) -> tuple[Pager, Position | None]:
    """Return the pager of a list method, and the position in the request's cursor.

    The cursors are bound to the caller, so that they reveal nothing about what another caller may
    see. ``part`` names one of several lists of the method.

    Raises:
        InvalidParams: the cursor is not valid for this list.
    """
    server, request = call.server, call.request
    scope = by_tenant(":".join((server.name, request.method, call.principal.key, *part)))
    pager = Pager(scope, server.page_size, CURSOR_SIGNER)
    return pager, pager.position(read_params(request.params, ListParams).cursor)


def with_next_cursor(result: dict[str, Any], cursor: str | None) -> dict[str, Any]:
    """Return the result of a list method with the cursor of the next page, if there is one."""
    return result if cursor is None else {**result, "nextCursor": cursor}


# Pages that were encoded --------------------------------------------------------------------------


class _Page(NamedTuple):
    entries: Any
    """The entries in the format of the request's revision, encoded."""
    is_private: bool
    """Whether it may differ between callers."""
    last: str | None
    """The key of its last entry, if another page follows."""


class _Pages:
    """The encoded pages of this process, at most ``MAX_BYTES``; the oldest are dropped.

    A key contains everything that its page depends on, including the catalog (by its ``_Shown``).
    Every change in the admin and every registration replaces the catalog, so nothing has to clear
    the pages. Pages are only read, so threads share them; a forked child keeps them.
    """

    MAX_BYTES = 8 * 1024 * 1024

    def __init__(self) -> None:
        self._pages: dict[Any, _Page] = {}
        self._size = 0
        self.renew_lock()
        at_fork(self.renew_lock)

    def renew_lock(self) -> None:
        """Set a new lock for changes, since a fork may copy a locked one; reads need no lock."""
        self._lock = threading.Lock()

    def get(self, key: Any) -> _Page | None:
        """Return a page, ``None`` if it is not cached."""
        return self._pages.get(key)

    def add(self, key: Any, page: _Page) -> None:
        """Cache a page that could be encoded, unless it is larger than an eighth of the cache."""
        if not isinstance(page.entries, msgspec.Raw):
            return
        size = _size(page)
        with self._lock:
            if key in self._pages or size > self.MAX_BYTES / 8:
                return
            self._pages[key] = page
            self._size += size
            while self._size > self.MAX_BYTES:
                self._size -= _size(self._pages.pop(next(iter(self._pages))))


def _size(page: _Page) -> int:
    return memoryview(page.entries).nbytes


_pages = _Pages()


@dataclass(frozen=True, eq=False, slots=True)
class _Shown:
    """What the pages of one list in one catalog have in common."""

    server: Server
    permission: Any
    settings: Settings
    is_kept: bool
    """Whether everything that a page depends on is known, so that it can be cached."""
    is_same_for_all: bool
    """Whether every caller sees the same page."""
    states: Sequence[Callable[[], Any]] = ()
    """Functions that return what else the schemas depend on."""


def has_page(call: Call) -> bool:
    """Return whether the page that a call requests is cached, so that an event loop can send it."""
    try:
        key = _page_key(call, open_list(call)[1])
    except InvalidParams:
        return False
    return key is not None and _pages.get(key) is not None


def _page_key(call: Call, after: Position | None) -> Any:
    """Return the cache key of a page: all that it depends on; ``None`` if that is not known.

    A page contains neither the id of the request nor a cursor.
    """
    basis = _shown(call)
    principal, account = call.principal, call.principal.account
    if not basis.is_kept or (account is None and principal.is_authenticated):
        return None
    # The caller's values that this package's permissions use.
    seen: tuple[Any, ...] = ()
    if not basis.is_same_for_all:
        seen = (principal.scopes,)
        if account is not None:
            flags = account.is_active, account.is_staff, account.is_superuser
            seen = (principal.scopes, flags, account.codenames, account.groups)
    position = "" if after is None else repr(after)
    states = tuple(state() for state in basis.states)
    return (basis, call.revision.version, position, seen, get_language(), states)


def _shown(call: Call) -> _Shown:
    server, settings, catalog = call.server, get_settings(), call.catalog
    assert catalog is not None
    method = call.request.method
    basis: _Shown | None = catalog.lists.get(method)
    if (
        basis is not None
        and basis.server is server
        and basis.permission is server.permission
        and basis.settings is settings
    ):
        return basis
    sources: list[Any] = []
    if method == "tools/list":
        sources = [
            source for tool in catalog.tools.values() for source in (tool.arguments, tool.output)
        ]
    elif method == "prompts/list":
        sources = [prompt.arguments for prompt in catalog.prompts.values()]
    # Of all components: a caller may see a tool, but not the UI resource that it links to.
    permissions = [
        permission
        for component in catalog
        for permission in parse_permissions(component.permission)
    ]
    own = all(map(needs_only_account, permissions))
    basis = catalog.lists[method] = _Shown(
        server,
        server.permission,
        settings,
        is_kept=own and all(map(_is_known, sources)),
        is_same_for_all=not permissions and not any(component.scopes for component in catalog),
        states=[source.schema_state for source in sources if hasattr(source, "schema_state")],
    )
    return basis


def _is_known(source: Any) -> bool:
    """Return whether it is known what the schema of an argument source depends on."""
    is_computed = isinstance(getattr(type(source), "json_schema", None), property)
    return not hasattr(source, "for_caller") and (
        not is_computed or hasattr(source, "schema_state")
    )


def common_members(component: Component) -> dict[str, Any]:
    """Return the members that all listed components have in common, as far as they are declared."""
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
    declared: dict[str, Any] = {}
    if "tools" in catalog.capabilities:
        declared["tools"] = dict(changes)
    if "resources" in catalog.capabilities:
        hears = can_stream and any(
            component.subscribe for component in catalog.readable_components()
        )
        declared["resources"] = {**changes, **({"subscribe": True} if hears else {})}
    if "prompts" in catalog.capabilities:
        declared["prompts"] = dict(changes)
    if "completions" in catalog.capabilities:
        declared["completions"] = {}
    if declared and can_stream:
        declared["logging"] = {}
    if extensions := server_extensions(server):
        declared["extensions"] = extensions
    return declared


def discover(call: Call) -> dict[str, Any]:
    """Return the result of ``server/discover``."""
    server = call.server
    result: dict[str, Any] = {
        "supportedVersions": revisions.advertised_versions(
            server.protocol_versions, requested=call.revision.version
        ),
        "capabilities": capabilities(server, can_stream=call.channel.can_stream),
        "ttlMs": 0,
        "cacheScope": "private",
    }
    if server.instructions:
        result["instructions"] = server.instructions
    return result


def public_icons(icons: Iterable[Icon]) -> list[dict[str, Any]]:
    """Return the icons that a client may fetch, with absolute URLs.

    A path of this site is joined to ``BASE_URL``. An icon whose URL is neither https nor data is
    left out, since clients must reject it.
    """
    public: list[dict[str, Any]] = []
    for icon in icons:
        src = urljoin(get_settings().base_url, icon.src) if icon.src.startswith("/") else icon.src
        if src.lower().startswith(("https:", "data:")):
            public.append({**icon.to_wire(), "src": src})
    return public


def server_extensions(server: Server) -> dict[str, dict[str, Any]]:
    """Return the extensions that the server uses, by name, with their settings."""
    extensions = {**authentication.authorization_extensions(server.auth)}
    if any(tool.ui is not None for tool in server.catalog.tools.values()):
        extensions[UI] = {}
    if server.catalog.skills:
        extensions[SKILLS] = {"directoryRead": True}
    if has_task_tools(server.catalog):
        extensions[TASKS] = {}
    return extensions
