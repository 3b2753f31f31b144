"""Work that has to be committed whatever becomes of the transaction around it.

A provider that rotates refresh tokens has forgotten the old one by the time our transaction could
be rolled back, and a read-only tool may not write at all.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from django.db import connections

from mcp_django.oauth.upstream.errors import UpstreamUnavailable

# More than waiting for a renewal and doing one may take.
MAX_SECONDS = 45
T = TypeVar("T")


def outside(work: Callable[[], T]) -> T:
    """What the work returns, done in a thread that has database connections of its own.

    Raises:
        UpstreamUnavailable: it is not done within 45 seconds.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as exc:  # noqa: BLE001 - raised again where it is waited for
            failed.append(exc)
        finally:
            connections.close_all()

    thread = Thread(target=run, name="mcp-upstream", daemon=True)
    thread.start()
    thread.join(MAX_SECONDS)
    if thread.is_alive():
        # It waits for a row that the transaction around us has locked.
        raise UpstreamUnavailable("The database is busy.")
    if failed:
        raise failed[0]
    return done[0]
