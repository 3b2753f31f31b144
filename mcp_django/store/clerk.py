"""The one thread in which the hub reads and writes rows, so that the loop never waits for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

P = ParamSpec("P")
T = TypeVar("T")


def _thread() -> ThreadPoolExecutor:
    return _thread_of(os.getpid())


@cache
def _thread_of(pid: int) -> ThreadPoolExecutor:
    # A forked child has none of its parent's threads.
    return ThreadPoolExecutor(1, thread_name_prefix="mcp-clerk")


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a short function of the store; its connection is tended as a request's would be."""
    work = partial(_tended, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_thread(), work)


def submit(function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Run a short function of the store soon, from any thread; it has to see to its own errors."""
    _thread().submit(_tended, partial(function, *args, **kwargs))


def _tended(function: Callable[[], T]) -> T:
    close_old_connections()
    try:
        return function()
    finally:
        close_old_connections()
