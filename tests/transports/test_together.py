"""What ends in one turn of an event loop is written in one go."""

from __future__ import annotations

import asyncio

import pytest

from mcp_django.transports.durable_streams import WriteCoalescer


async def test_what_comes_at_once_is_written_at_once() -> None:
    written: list[list[int]] = []
    together = WriteCoalescer(written.append)
    await asyncio.gather(*(together.add(number) for number in range(50)))
    await together.add(50)
    assert written == [[*range(50)], [50]]


async def test_whoever_is_cancelled_leaves_the_others_their_turn() -> None:
    written: list[list[str]] = []
    together = WriteCoalescer(written.append)
    leaving, staying = (asyncio.create_task(together.add(name)) for name in ("a", "b"))
    # One turn, in which both hand theirs over.
    await asyncio.sleep(0)
    leaving.cancel()
    await staying
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert written == [["a", "b"]]


async def test_whoever_hands_over_learns_of_a_failure() -> None:
    def fail(items: list[int]) -> None:
        raise LookupError(items)

    together = WriteCoalescer(fail)
    found = await asyncio.gather(together.add(1), together.add(2), return_exceptions=True)
    assert [str(one) for one in found] == ["[1, 2]", "[1, 2]"]
