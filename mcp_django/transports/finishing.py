"""From an admitted call to its reply: run in this thread, or from the event loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from mcp_django.exceptions import MCPError, RequestCancelled
from mcp_django.runtime import calls
from mcp_django.runtime.dispatch import respond
from mcp_django.runtime.incoming import Result
from mcp_django.runtime.pools import pool, with_request_signals
from mcp_django.transports.desk import on_loop
from mcp_django.transports.exchange import Reply, Stream, Work
from mcp_django.transports.lookout import lookout
from mcp_django.transports.replies import error_reply


def finish(work: Work) -> Reply | Stream:
    """Run a call in this thread and answer it."""
    invocation = work.invocation
    try:
        if invocation.incoming.revision.stateless:
            return _answered(work, calls.run(invocation))
        with lookout.over(invocation):
            result = calls.run_until_cancelled(invocation)
        return _answered(work, result)
    except MCPError as exc:
        return _failed(work, exc)
    except asyncio.CancelledError:
        if not invocation.cancellation.is_wish:
            raise
        return _cancelled(work)


async def afinish(work: Work) -> Reply | Stream:
    """Run a call from the event loop and answer it."""
    if work.invocation.incoming.revision.stateless:
        return await _afinish(work)
    # A client that went away has cancelled nothing (HTTP-16).
    task = asyncio.get_running_loop().create_task(_watched(work))
    _detached.add(task)
    task.add_done_callback(_detached.discard)
    work.invocation.cancellation.then(on_loop(task.cancel))
    await asyncio.wait([task])
    return _cancelled(work) if task.cancelled() else task.result()


async def _watched(work: Work) -> Reply | Stream:
    with lookout.over(work.invocation):
        return await _afinish(work)


async def _afinish(work: Work) -> Reply | Stream:
    try:
        result = await calls.execute(work.invocation)
        if work.ask is None or result.get("resultType") != "input_required":
            return _answered(work, result)
        # Opening the stream writes its row.
        ask = partial(with_request_signals, partial(work.ask, result))
        return await pool("desk").run(ask)
    except MCPError as exc:
        return _failed(work, exc)


_detached: set[asyncio.Task[Reply | Stream]] = set()


def _is_cancelled(work: Work) -> bool:
    """Whether the client of a session has cancelled the call; what it comes to is discarded."""
    call = work.invocation
    return call.cancellation.is_wish and not call.incoming.revision.stateless


def _cancelled(work: Work) -> Reply:
    """The answer to a call that its client has cancelled, which needs one over HTTP (CAN-8)."""
    return _failed(work, RequestCancelled())


async def timed_out(work: Work) -> Reply:
    """The answer to a call whose thread did not come back in time."""
    try:
        result = await calls.timed_out(work.invocation)
        body = respond(work.invocation.incoming, result)
        return Reply(status=200, headers=work.headers, body=body)
    except MCPError as exc:
        return _failed(work, exc)


def _answered(work: Work, result: Result) -> Reply | Stream:
    if _is_cancelled(work):
        return _cancelled(work)
    if work.ask is not None and result.get("resultType") == "input_required":
        return work.ask(result)
    body = respond(work.invocation.incoming, result)
    return Reply(status=200, headers=work.headers, body=body)


def _failed(work: Work, exc: MCPError) -> Reply:
    incoming = work.invocation.incoming
    if _is_cancelled(work):
        exc = RequestCancelled()
    reply = error_reply(exc, incoming.request.id, incoming.revision)
    extra = tuple(pair for pair in work.headers if pair not in reply.headers)
    return replace(reply, headers=(*reply.headers, *extra))
