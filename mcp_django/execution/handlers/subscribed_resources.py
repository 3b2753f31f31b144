"""The resources that one stream subscribes to, and which of them its caller may read.

The client chooses how many URIs there are and how long they are, so nothing is repeated for each
of them on a timer. A URI is resolved once for each catalog. Permissions are checked for each
resource or template. Whether the caller may read a row is known only to the function of its
template, which runs for a URI when the answer matters: when it is acknowledged, and when the
resource has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Catalog
from mcp_django.components.resource import ReadableComponent, ResourceTemplate
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.execution.call import Call, OpenAnswer
from mcp_django.execution.handlers.resources import find_readable, is_row_readable
from mcp_django.execution.policy import PermissionCache, authorize, is_visible
from mcp_django.protocol.uritemplate import lower_scheme
from mcp_django.storage.sessions import MAX_SUBSCRIBED_CHARACTERS, MAX_SUBSCRIPTIONS

# How long the rows of one stream are checked at a time; then other streams have their turn.
ROWS_SECONDS = 1.0


class SubscribedResources:
    """The resources that one stream subscribes to; ``older`` is the object that this one replaces.

    The stream owns the object, and calls one method at a time. Results for URIs that ``older`` also
    has are reused. The attribute ``uris`` has the URIs with their schemes in lower case.
    """

    def __init__(self, uris: Iterable[str], older: SubscribedResources | None = None) -> None:
        self.spellings: dict[str, str] = {}
        """Each URI as the client wrote it, since the client compares it with the notifications."""
        for uri in uris:
            self.spellings.setdefault(lower_scheme(uri), uri)
        self.uris = tuple(self.spellings)
        self._catalog: Catalog | None = None
        self._components: Mapping[str, ReadableComponent | None] = {}
        """The component that serves each URI; ``None`` if the URI cannot be subscribed to."""
        self._permitted: frozenset[int] = frozenset()
        """The components that the caller may read, by identity: the catalog keeps them alive."""
        self._rows: dict[str, bool] = {}
        """Whether the caller may read the row of a URI, as last checked."""
        if older is not None:
            self._catalog, self._permitted = older._catalog, older._permitted
            self._components = {
                uri: older._components[uri] for uri in self.uris if uri in older._components
            }
            self._rows = {uri: older._rows[uri] for uri in self.uris if uri in older._rows}

    def visible_to(
        self, principal: Principal, catalog: Catalog, permission_cache: PermissionCache
    ) -> SubscribedResources:
        """Return the resources that the caller may see and that allow subscriptions."""
        self._resolve(catalog)
        self._permitted = frozenset(
            key
            for key, component in self._distinct().items()
            if is_visible(principal, component, permission_cache=permission_cache)
        )
        permitted = filter(self._is_permitted, self.uris)
        return SubscribedResources(map(self.spellings.__getitem__, permitted), self)

    def needs_authorization(self, catalog: Catalog) -> bool:
        """Return whether ``authorize`` has to be called: a URI is new, or the catalog changed."""
        return catalog is not self._catalog or len(self._components) < len(self.uris)

    def authorize(self, call: Call) -> None:
        """Check the permissions of the caller again, once for each resource or template.

        For a thread: it may query the database.
        """
        self._resolve(call.server.catalog)
        cache = PermissionCache(call.principal)
        self._permitted = frozenset(
            key
            for key, component in self._distinct().items()
            if _may_use(call.principal, component, cache)
        )

    def forget_rows(self) -> None:
        """Forget which rows the caller may read, so that they are checked before they matter."""
        self._rows = {}

    def unchecked(self, uris: Iterable[str]) -> list[str]:
        """Return the URIs whose rows have to be checked before ``covers`` is called for them."""
        return [
            uri
            for uri in uris
            if uri not in self._rows
            and isinstance(self._components.get(uri), ResourceTemplate)
            and self._is_permitted(uri)
        ]

    def check_rows(self, call: Call, uris: Iterable[str]) -> None:
        """Check with the functions of templates whether the caller may read these URIs now.

        At least the first URI is checked, and no other after ``ROWS_SECONDS``. For a thread: the
        site's functions run.
        """
        cache = PermissionCache(call.principal)
        until = monotonic() + ROWS_SECONDS
        for number, uri in enumerate(uris):
            if number and monotonic() >= until:
                return
            template = self._components.get(uri)
            self._rows[uri] = (
                isinstance(template, ResourceTemplate)
                and _may_use(call.principal, template, cache)
                and is_row_readable(call, template, uri)
            )

    def covers(self, uri: str) -> bool:
        """Return whether the caller may be notified of a change, as last checked."""
        if not self._is_permitted(uri):
            return False
        is_row = isinstance(self._components[uri], ResourceTemplate)
        return not is_row or self._rows.get(uri, False)

    def _resolve(self, catalog: Catalog) -> None:
        components = self._components if catalog is self._catalog else {}
        self._components = {
            uri: components[uri] if uri in components else _find(catalog, uri) for uri in self.uris
        }
        self._catalog = catalog

    def _distinct(self) -> dict[int, ReadableComponent]:
        return {
            id(component): component
            for component in self._components.values()
            if component is not None
        }

    def _is_permitted(self, uri: str) -> bool:
        return id(self._components.get(uri)) in self._permitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription(OpenAnswer):
    """The part of a ``subscriptions/listen`` that the server honors."""

    kinds: frozenset[str]
    resources: SubscribedResources
    tasks: tuple[str, ...] = ()


def _find(catalog: Catalog, uri: str) -> ReadableComponent | None:
    component = find_readable(catalog, uri)
    return component if component is not None and component.subscribe else None


def _may_use(
    principal: Principal, component: ReadableComponent, permission_cache: PermissionCache
) -> bool:
    try:
        return authorize(principal, component, permission_cache=permission_cache)
    except (AccessRefused, MCPError):
        return False


def select_uris(uris: Iterable[str]) -> list[str]:
    """Return the URIs that one stream may subscribe to, with the limits of a session.

    A URI that exceeds the rest of ``MAX_SUBSCRIBED_CHARACTERS`` is left out, but shorter URIs after
    it are not: a session rejects single subscriptions in the same way.
    """
    selected: dict[str, None] = {}
    size = 0
    for uri in uris:
        if len(selected) >= MAX_SUBSCRIPTIONS:
            break
        if uri not in selected and size + len(uri) <= MAX_SUBSCRIBED_CHARACTERS:
            selected[uri] = None
            size += len(uri)
    return list(selected)
