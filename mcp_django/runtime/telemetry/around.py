"""Around a call: its line in the call log, and its span while its function runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcp_django.runtime.journal import akept, keeping, kept

if TYPE_CHECKING:
    from mcp_django.runtime.incoming import Invocation
    from mcp_django.runtime.journal import Entry

Result = dict[str, Any]


def observed(invocation: Invocation, work: Callable[[], Result]) -> Result:
    """``kept``, within the span of the request if it has one.

    Raises:
        MCPError: the work did, or it cannot be logged and so does not run.
    """
    operation = invocation.entry.operation
    if operation is None:
        return kept(invocation, work)
    with operation.active():
        try:
            result = kept(invocation, work)
        except BaseException as exc:
            operation.raised(exc)
            raise
    operation.returned(result, is_stateless=invocation.incoming.revision.stateless)
    return result


async def aobserved(
    invocation: Invocation,
    work: Callable[[], Awaitable[Result]],
    *,
    runs_here: bool = True,
    own_thread: bool = True,
) -> Result:
    """``akept``, within the span; without ``runs_here`` the work is ``observed`` in a thread."""
    operation = invocation.entry.operation
    if operation is None:
        return await akept(invocation, work, runs_here=runs_here, own_thread=own_thread)
    with operation.active():
        try:
            result = await akept(invocation, work, runs_here=runs_here, own_thread=own_thread)
        except asyncio.CancelledError as exc:
            # A thread that is at it will tell how it went.
            if runs_here:
                operation.raised(exc)
            raise
        except BaseException as exc:
            operation.raised(exc)
            raise
    operation.returned(result, is_stateless=invocation.incoming.revision.stateless)
    return result


def refused(entry: Entry, exc: Exception) -> None:
    """What was admitted does not run, because of others."""
    if entry.operation is not None:
        entry.operation.raised(exc)
    keeping.refused(entry, exc)
