"""Watching over the caller of an open stream: it ends when the caller would not be let in again.

Three things make a stream look again: it is told (a credential was revoked, a user deactivated), a
minute has passed, or the credential has expired. ``listen`` and ``standing`` look in their own
loops; what is here serves streams that wait for something else meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from django.db import DatabaseError
from django.utils import timezone

from mcp_django.auth.authentication import refresh
from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Server
from mcp_django.exceptions import AccessRefused
from mcp_django.runtime.policy import admit_connection
from mcp_django.store.hub import hub
from mcp_django.store.revocations import topics_of
from mcp_django.transports import listen
from mcp_django.transports.desk import at_desk

logger = logging.getLogger("mcp_django")

# A short call is over before anybody could be sent away, and need not ask who might be.
SHORT_SECONDS = 5


def seconds_left(principal: Principal) -> float | None:
    """The seconds until the credential expires, ``None`` for one that does not."""
    if principal.expires_at is None:
        return None
    return max(0.0, (principal.expires_at - timezone.now()).total_seconds())


@contextmanager
def watching(
    server: Server,
    principal: Principal,
    end: Callable[[], object],
    *,
    after: float = 0,
    ends_at_expiry: bool = True,
) -> Iterator[None]:
    """Call ``end`` once on the running loop when the caller would not be let in again.

    ``after`` so many seconds the watch begins. Without ``ends_at_expiry`` the credential may expire
    meanwhile: a call that was admitted in time is answered, unless the caller is sent away.
    """
    if not principal.backend and principal.expires_at is None:
        # The process itself vouches for this caller (stdio, the in-memory client).
        yield
        return
    watch = _Watch(server, principal, ends_at_expiry=ends_at_expiry)
    task = asyncio.get_running_loop().create_task(watch.run(end, after=after))
    try:
        yield
    finally:
        task.cancel()


class _Watch:
    def __init__(self, server: Server, principal: Principal, *, ends_at_expiry: bool) -> None:
        self._server = server
        self._principal = principal
        self._ends_at_expiry = ends_at_expiry
        self._rung = asyncio.Event()
        self._expires = math.inf

    async def run(self, end: Callable[[], object], *, after: float) -> None:
        """Wait until the caller has to go, and call ``end`` then."""
        left = seconds_left(self._principal)
        if left is not None:
            self._expires = asyncio.get_running_loop().time() + left
        await asyncio.sleep(after)
        topics = topics_of(self._principal.credential, self._principal.user)
        leave = hub().subscribe(topics, lambda _: self._rung.set())
        try:
            await hub().ready(topics)
            while await self._may_stay():
                await self._wait()
        finally:
            leave()
        end()

    async def _wait(self) -> None:
        left = self._expires - asyncio.get_running_loop().time()
        patience = listen.until_recheck()
        if self._ends_at_expiry or left > 0:
            patience = min(patience, max(left, 0))
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._rung.wait()

    async def _may_stay(self) -> bool:
        """Whether the caller may; a database that cannot say keeps no stream open (SUB-16)."""
        was_rung = self._rung.is_set()
        self._rung.clear()
        if self._expires <= asyncio.get_running_loop().time():
            # What has expired would not be let in again, and says nothing of the caller.
            if self._ends_at_expiry:
                return False
            if not was_rung:
                return True
        try:
            return await at_desk(self._look_again)
        except (AccessRefused, DatabaseError):
            return False
        except Exception:  # a permission or backend of the site's own
            logger.exception("The caller of a stream could not be looked at; the stream ends.")
            return False

    def _look_again(self) -> bool:
        principal = refresh(self._principal)
        if principal is None:
            return False
        # Its owner may have switched the server off.
        self._server.refresh()
        admit_connection(self._server, principal)
        return True
