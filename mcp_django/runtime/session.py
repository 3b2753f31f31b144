"""What a client of a handshake revision agreed on, wherever it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp_django.core.context import Session
from mcp_django.protocol.revisions import Revision
from mcp_django.store.sessions import MAX_SUBSCRIPTIONS, TooManySubscriptions


class ClientSession(Session, Protocol):
    """A session; the store has one in the database, ``MemorySession`` is one in a connection."""

    @property
    def revision(self) -> Revision:
        """The negotiated revision."""

    def set_log_level(self, level: str) -> None:
        """Keep a level for all calls that follow."""

    def subscribe(self, uri: str) -> None:
        """Tell the client of changes of a resource.

        Raises:
            TooManySubscriptions: it listens to as many as one may.
        """

    def unsubscribe(self, uri: str) -> None:
        """Tell it no more."""


def _nothing() -> None:
    return None


@dataclass(slots=True, kw_only=True)
class MemorySession:
    """The session of a connection that is a session itself: stdio, HTTP+SSE, a test."""

    revision: Revision
    client_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    log_level: str | None = None
    uris: dict[str, None] = field(default_factory=dict)
    on_change: Callable[[], None] = _nothing
    """Called, in any thread, when the subscriptions change."""

    def set_log_level(self, level: str) -> None:
        """Keep a level for all calls that follow."""
        self.log_level = level

    def subscribe(self, uri: str) -> None:
        """Tell the client of changes of a resource."""
        if len(self.uris) >= MAX_SUBSCRIPTIONS and uri not in self.uris:
            raise TooManySubscriptions
        self.uris[uri] = None
        self.on_change()

    def unsubscribe(self, uri: str) -> None:
        """Tell it no more."""
        self.uris.pop(uri, None)
        self.on_change()
