"""`Context`: what a component knows of its call."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django import Context
from mcp_django.components.context import Cancellation, NullPort
from mcp_django.test import MCPClient
from tests.kit.drivers import message
from tests.kit.servers import open_to_all, person, post, token_for


def test_everything_the_call_is_known_by():
    server = open_to_all()
    seen: list[Context] = []

    @server.tool
    def look(ctx: Context) -> str:
        seen.append(ctx)
        return repr(ctx)

    assert MCPClient(server=server).call_tool("look").text == (
        "<Context server='inline' principal='anonymous'>"
    )
    (ctx,) = seen
    assert ctx.server is server
    assert ctx.user is ctx.principal.user
    assert not ctx.user.is_authenticated
    assert ctx.request is None
    assert ctx.session is None
    assert ctx.client == {"name": "mcp_django.test", "version": "1"}
    assert ctx.protocol_version == "2026-07-28"
    assert ctx.trace == {}
    assert ctx.cancelled is False


@pytest.mark.django_db
def test_the_context_knows_what_the_client_agreed_on():
    server = open_to_all()
    seen: list[Any] = []

    @server.tool
    def look(ctx: Context) -> None:
        seen.append(ctx.session)

    MCPClient(server=server, protocol_version="2025-11-25").call_tool("look")
    (session,) = seen
    assert session.client_info == {"name": "mcp_django.test", "version": "1"}
    assert session.log_level == "debug"
    assert {"sampling", "elicitation", "roots"} <= {*session.capabilities}


@pytest.mark.django_db
def test_over_http_there_is_a_request():
    _, plaintext = token_for(person())
    body = message("tools/call", {"name": "whoami"})
    result: Any = post("/mcp", body, token=plaintext).json()["result"]
    assert result["structuredContent"]["method"] == "POST"
    assert result["structuredContent"]["client"] is None


def test_a_client_that_asked_for_nothing_is_sent_nothing():
    silence = NullPort()
    silence.progress(1, None, None)
    silence.log("info", "x", None)


def test_two_threads_that_cancel_at_once_call_each_callback_once():
    called: list[int] = []
    cancellation = Cancellation()

    class Contested(list[Any]):
        """Another thread takes the last callback between the check and the removal."""

        def __bool__(self) -> bool:
            return True

        def __len__(self) -> int:
            return 1

    cancellation._callbacks = Contested([lambda: called.append(1), lambda: called.append(2)])
    cancellation.cancel()
    assert sorted(called) == [1, 2]

    def fails() -> None:
        raise IndexError("of the site")

    cancellation = Cancellation()
    cancellation.add_callback(fails)
    with pytest.raises(IndexError, match="of the site"):
        cancellation.cancel()


def test_a_cancellation_stays():
    cancellation = Cancellation()
    assert not cancellation
    cancellation.cancel()
    cancellation.cancel()
    assert cancellation
