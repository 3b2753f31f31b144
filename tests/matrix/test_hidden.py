"""A component that the caller may not see is answered like one that does not exist, in all ways.

Not only the texts are equal: so are the SQL statements and the switches to threads, which an
attacker could tell from the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db.backends.utils import CursorWrapper

from mcp_django.execution.threads import BoundedPool
from tests.matrix.callers import CALLERS
from tests.matrix.cases import HTTP, Case, call, get, read
from tests.matrix.links import Answer, HttpLink


def subscribe(uri: str) -> Case:
    """Return a request that subscribes to a resource."""
    return Case(method="resources/subscribe", params={"uri": uri})


def complete(name: str) -> Case:
    """Return a request that completes a prompt's argument."""
    ref = {"type": "ref/prompt", "name": name}
    params = {"ref": ref, "argument": {"name": "topic", "value": ""}}
    return Case(method="completion/complete", params=params)


PAIRS: dict[str, tuple[str, str, Callable[[str], Case]]] = {
    "tool": ("hidden", "absent", call),
    "tool on the loop": ("hidden_later", "absent_later", call),
    "resource": ("matrix://hidden", "matrix://absent", read),
    "prompt": ("hidden", "absent", get),
    "subscription": ("matrix://hidden", "matrix://absent", subscribe),
    "completion": ("hidden", "absent", complete),
}


class Work:
    """The SQL statements and the jobs in threads of a request."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.hops = 0


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Count the statements of all threads, and the jobs of the pools."""
    work, execute, run = Work(), CursorWrapper.execute, BoundedPool.run

    def counting(self: CursorWrapper, sql: Any, params: Any = None) -> Any:
        work.statements.append(str(sql))
        return execute(self, sql, params)

    async def hopping(self: BoundedPool, *args: Any, **kwargs: Any) -> Any:
        work.hops += 1
        return await run(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(CursorWrapper, "execute", counting)
        patch.setattr(BoundedPool, "run", hopping)
        yield work


@pytest.mark.every_mount
@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("mount", HTTP)
async def test_what_is_hidden_is_answered_like_what_is_absent(
    mount, version, kind, watch, monkeypatch
):
    hidden, absent, make = PAIRS[kind]
    link = HttpLink(mount, version, CALLERS["member"])
    await link.prepare(make(hidden))
    # The first request of a process loads and caches more than later ones.
    await link.ask(make(absent))

    async def ask(name: str) -> tuple[Answer, Work]:
        await watch.forget(is_reset=True)
        with counted(monkeypatch) as work:
            answer = await link.ask(make(name))
        answer.body = answer.body.replace(name, "NAME")
        return answer, work

    (first, did_first), (second, did_second) = await ask(hidden), await ask(absent)
    assert "error" in first.response()
    # The names have the same length, so that even the lengths are equal.
    assert first == second
    assert did_first.statements == did_second.statements
    assert did_first.hops == did_second.hops
