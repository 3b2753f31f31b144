"""Requests for a component that are turned away before their component is looked for.

Whoever is nobody can cause as many of those as he likes, so each process keeps some a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from mcp_django.auth.principal import Principal, anonymous
from mcp_django.core.catalog import Server
from mcp_django.exceptions import AccessRefused, Busy
from mcp_django.protocol.envelope import Envelope, revision_of
from mcp_django.protocol.jsonrpc import Batch, Request
from mcp_django.protocol.revisions import LATEST, Revision
from mcp_django.protocol.uritemplate import check_uri
from mcp_django.runtime.incoming import Incoming
from mcp_django.runtime.journal import keeping
from mcp_django.runtime.journal.entry import KINDS, Entry
from mcp_django.runtime.pools import BoundedPool, with_request_signals

T = TypeVar("T")

MINUTE_SECONDS = 60.0
NOBODY_A_MINUTE = 60


class _Named(msgspec.Struct):
    name: Any = None
    uri: Any = None


class Patience:
    """So much a minute; for any thread, where a few more do no harm."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin from nothing."""
        self._ends, self._left = 0.0, 0

    def allows(self) -> bool:
        """Whether one more is kept."""
        now = time.monotonic()
        if now >= self._ends:
            self._ends, self._left = now + MINUTE_SECONDS, NOBODY_A_MINUTE
        self._left -= 1
        return self._left >= 0


patience = Patience()


@contextmanager
def watched(
    server: Server,
    message: object,
    *,
    transport: str,
    principal: Principal | None = None,
    session: Revision | None = None,
) -> Iterator[list[Principal]]:
    """Put it into the call log when a request is turned away at the door.

    The principal may be appended to what is given as soon as it is known; ``session`` is the
    revision that was agreed on, where that is known.
    """
    known = [principal] if principal is not None else []
    try:
        yield known
    except (AccessRefused, Busy) as exc:
        caller = next(iter(known), None)
        turned_away(server, message, exc, transport=transport, principal=caller, session=session)
        raise


async def admitted(
    where: BoundedPool,
    work: Callable[[], T],
    server: Server,
    message: object,
    *,
    transport: str,
    key: str | None,
    session: Revision | None = None,
) -> T:
    """What the work gives, in a thread; a pool that is full turns the request away.

    Raises:
        Busy: it is.
    """
    has_begun = False

    def begin() -> T:
        nonlocal has_begun
        has_begun = True
        return work()

    try:
        return await where.run(partial(with_request_signals, begin), key=key)
    except Busy as exc:
        if not has_begun:
            turned_away(server, message, exc, transport=transport, session=session)
        raise


def turned_away(
    server: Server | None,
    message: object,
    exc: Exception,
    *,
    transport: str,
    principal: Principal | None = None,
    session: Revision | None = None,
) -> None:
    """Keep the requests of a message that are for a component and were not let in."""
    members = message.members if isinstance(message, Batch) else (message,)
    for member in members:
        if not isinstance(member, Request) or member.method not in KINDS:
            continue
        caller = principal or anonymous()
        if caller.is_authenticated or patience.allows():
            revision = revision_of(member, session) or LATEST
            _keep(server, member, exc, transport, caller, revision)


@dataclass(frozen=True, slots=True)
class _Unknown:
    """Stands for a server that nobody has looked up yet."""

    name: str = ""


def _keep(
    server: Server | None,
    request: Request,
    exc: Exception,
    transport: str,
    principal: Principal,
    revision: Revision,
) -> None:
    incoming = Incoming(
        # Of one that is not known only the name is read.
        server=server or cast(Server, _Unknown()),
        request=request,
        envelope=Envelope(revision=revision, client_capabilities={}),
        principal=principal,
        transport=transport,
    )
    incoming.entry.open(incoming)
    name = _name(request)
    incoming.entry.wants(name)
    if server is not None and request.method == "resources/read":
        _look_up(server, name, incoming.entry)
    keeping.refused(incoming.entry, exc)


def _look_up(server: Server, uri: str, entry: Entry) -> None:
    """Name the template in place of what its variables stand for."""
    try:
        check_uri(uri)
    except ValueError:
        return
    if (found := server.offered.find_resource(uri)) is not None:
        entry.found(found[0], uri=uri)


def _name(request: Request) -> str:
    try:
        named = msgspec.json.decode(request.params or b"{}", type=_Named)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""
    found = named.uri if request.method == "resources/read" else named.name
    return found if isinstance(found, str) else ""
