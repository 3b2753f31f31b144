"""A view is called the same over every mount, sync or async, with middleware around it or not."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import SyncToAsync, sync_to_async
from django.core.management import call_command
from django.db import connections

from mcp_django import mcp
from mcp_django.asgi import get_asgi_application
from tests.kit.drivers import message, send
from tests.kit.servers import person, token_for
from tests.transports.mounts import ask

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _connections():
    # Async ORM calls of a test leave a connection to asgiref's thread.
    yield
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@pytest.fixture(params=["wsgi", "lane", "raw"])
def call(request):
    async def lane(*args: Any, **headers: Any) -> Any:
        return await send(get_asgi_application(), "/mcp", *args, **headers)

    async def raw(*args: Any, **headers: Any) -> Any:
        return await send(mcp.asgi, "/mcp", *args, **headers)

    async def wsgi(*args: Any, **headers: Any) -> Any:
        return await ask("wsgi", "/mcp", *args, **headers)

    return {"wsgi": wsgi, "lane": lane, "raw": raw}[request.param]


@pytest.fixture(params=["who", "who_async"])
def tool(request):
    mcp.register_view(request.param, name="who_over_mount", description="Who calls.")
    yield request.param
    mcp.unregister(mcp.tools["who_over_mount"])


async def test_the_view_sees_the_bearer(call, tool):
    user = await sync_to_async(person)()
    _, token = await sync_to_async(token_for)(user)
    sent = message("tools/call", {"name": "who_over_mount", "arguments": {}})
    answer = await call(sent, authorization=f"Bearer {token}")
    expected = {"who": "ada", "who_async": "async ada"}[tool]
    assert answer.response()["result"]["content"] == [{"type": "text", "text": expected}]
    assert "set-cookie" not in answer.headers


def test_commands_show_a_view(tool, capsys):
    call_command("mcp", "list")
    call_command("mcp", "inspect", "who_over_mount")
    shown = capsys.readouterr().out
    assert shown.count("who_over_mount") >= 2
    assert "Who calls." in shown
