"""When open streams end because their caller is no longer authorized.

This is checked when pub/sub notifies that access was revoked (a credential was revoked, a user
deactivated), at least once a minute, and when the credential expires. Streams of changes check
their callers themselves; ``watch_access`` does it for streams of other kinds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from django.db import DatabaseError
from django.utils import timezone

from mcp_django.auth.authentication import refresh_principal
from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.exceptions import AccessRefused
from mcp_django.execution.policy import admit_caller
from mcp_django.execution.threads import run_in_short_thread
from mcp_django.storage.pubsub import get_hub
from mcp_django.storage.revocations import revocation_topics

logger = logging.getLogger("mcp_django")

# How often, at least, an open stream checks that its caller is still authorized.
RECHECK_SECONDS = 60
# Calls shorter than this are not watched: they end before a revocation would matter.
SHORT_SECONDS = 5


def seconds_until_recheck() -> float:
    """Return the seconds until the next check; random, so streams check at different times."""
    return RECHECK_SECONDS * random.uniform(0.5, 1)  # noqa: S311 - not for security


def seconds_left(principal: Principal) -> float | None:
    """Return the seconds until the credential expires, ``None`` if it does not."""
    if principal.expires_at is None:
        return None
    return max(0.0, (principal.expires_at - timezone.now()).total_seconds())


def reauthorize(server: Server, principal: Principal) -> Principal | None:
    """Authorize the caller again; return ``None`` if the credential has become invalid.

    Raises:
        AccessRefused: the caller may no longer use the server.
    """
    current = refresh_principal(principal)
    return None if current is None else admit_caller(server, lambda: current)


@contextmanager
def watch_access(
    server: Server,
    principal: Principal,
    end: Callable[[], object],
    *,
    after: float = 0,
    ends_at_expiry: bool = True,
) -> Iterator[None]:
    """Call ``end`` once on the running loop when the caller loses its authorization.

    It is for streams of calls and tasks; streams of changes check the caller themselves.

    The first check is made ``after`` this many seconds. Without ``ends_at_expiry`` the credential
    may expire: a call that was authorized in time is answered, unless the caller's access is
    revoked.
    """
    if not principal.backend and principal.expires_at is None:
        # The process itself authenticated this caller (stdio, the in-memory transport).
        yield
        return
    watcher = _AccessWatcher(server, principal, ends_at_expiry=ends_at_expiry)
    task = asyncio.get_running_loop().create_task(watcher.run(end, after=after))
    try:
        yield
    finally:
        task.cancel()


class _AccessWatcher:
    def __init__(self, server: Server, principal: Principal, *, ends_at_expiry: bool) -> None:
        self._server = server
        self._principal = principal
        self._ends_at_expiry = ends_at_expiry
        self._notified = asyncio.Event()
        self._expires = math.inf

    async def run(self, end: Callable[[], object], *, after: float) -> None:
        """Wait until the caller loses its authorization, then call ``end``."""
        remaining = seconds_left(self._principal)
        if remaining is not None:
            self._expires = asyncio.get_running_loop().time() + remaining
        await asyncio.sleep(after)
        topics = revocation_topics(self._principal.credential, self._principal.user)
        leave = get_hub().subscribe(topics, lambda _: self._notified.set())
        try:
            await get_hub().prepare(topics)
            while await self._may_stay():
                await self._wait()
        finally:
            leave()
        end()

    async def _wait(self) -> None:
        remaining = self._expires - asyncio.get_running_loop().time()
        patience = seconds_until_recheck()
        if self._ends_at_expiry or remaining > 0:
            patience = min(patience, max(remaining, 0))
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._notified.wait()

    async def _may_stay(self) -> bool:
        """Return whether the stream may stay open; it may not if the database is unavailable."""
        was_notified = self._notified.is_set()
        self._notified.clear()
        if self._expires <= asyncio.get_running_loop().time():
            # An expired credential would be rejected, which does not mean that access was revoked.
            if self._ends_at_expiry:
                return False
            if not was_notified:
                return True
        try:
            return await run_in_short_thread(
                lambda: reauthorize(self._server, self._principal) is not None
            )
        except (AccessRefused, DatabaseError):
            return False
        except Exception:  # e.g. from the site's own permission or backend
            logger.exception("Authorizing the caller of a stream failed; the stream ends.")
            return False
