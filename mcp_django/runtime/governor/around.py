"""Where a call is governed: in the thread whose connections it uses, from its start to its end."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from asgiref.sync import sync_to_async

from mcp_django.core.component import Component
from mcp_django.runtime.governor.call import GovernedCall
from mcp_django.runtime.journal.entry import Entry


class _Here(threading.local):
    """The governed call of this thread, and how many are inside of it."""

    call: GovernedCall | None = None
    depth = 0


_here = _Here()


@contextmanager
def around(component: Component, entry: Entry | None = None) -> Iterator[None]:
    """Govern what this thread does with its databases, if the component is to be governed.

    What a governed call calls in turn is a part of it: it spends the same limits, and may not
    write either, whatever it says of itself. The ``entry`` in the call log learns what it read.
    """
    if not component.is_governed:
        yield
        return
    _enter(component, entry)
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        _leave(succeeded=succeeded)


@asynccontextmanager
async def shared_thread(component: Component, entry: Entry | None = None) -> AsyncIterator[None]:
    """Govern an async call whose database work goes to a thread that it does not own.

    For tests, which have all of it in one thread so that everybody sees one transaction: calls
    that run there at the same time are governed as one.
    """
    if not component.is_governed:
        yield
        return
    await sync_to_async(_enter)(component, entry)
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        await sync_to_async(_leave)(succeeded=succeeded)


def _enter(component: Component, entry: Entry | None) -> None:
    if _here.call is None:
        call = GovernedCall(component)
        if entry is not None:
            entry.governed_by(call.spending)
        call.start()
        _here.call = call
    _here.depth += 1


def _leave(*, succeeded: bool) -> None:
    _here.depth -= 1
    call = _here.call
    if _here.depth == 0 and call is not None:
        _here.call = None
        call.end(succeeded=succeeded)
