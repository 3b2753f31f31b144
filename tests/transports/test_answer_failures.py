"""Errors in code of the site: permissions that fail, tools that exit or leave a thread untidy."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator

import pytest
from asgiref.sync import sync_to_async
from django import forms
from django.contrib.auth.models import Group
from django.db import connection, transaction

from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.components.context import Context
from mcp_django.protocol import envelope
from mcp_django.protocol.errors import INTERNAL_ERROR
from tests.kit.drivers import message
from tests.spec import spec
from tests.transports.mounts import ask
from tests.transports.stage import stage

PATH = "/stage/mcp"


class GroupForm(forms.Form):
    """A form that looks into the database to hold."""

    group = forms.ModelChoiceField(Group.objects.all(), to_field_name="name")


class HasGroups(BasePermission):
    """A permission that queries the database."""

    def has_permission(self, principal: Principal) -> bool:
        return Group.objects.exists()


class Fails(BasePermission):
    """A permission with a bug."""

    def has_permission(self, principal: Principal) -> bool:
        raise RuntimeError("secret detail")


async def greet() -> str:
    """Say hello."""
    return "hello"


async def join(form: GroupForm) -> str:
    """Join a group."""
    return f"joined {form.cleaned_data['group'].name}"


@pytest.fixture
def guarded():
    stage.tool(name="guarded", permission=HasGroups)(greet)
    stage.tool(name="join", form=GroupForm)(join)
    yield
    stage.unregister(greet)
    stage.unregister(join)


@pytest.mark.usefixtures("guarded")
@pytest.mark.django_db(transaction=True)
async def test_permissions_and_forms_may_use_the_database(mount):
    await Group.objects.acreate(name="crew")
    listed = await ask(mount, PATH, message("tools/list"))
    assert "guarded" in [tool["name"] for tool in listed.json()["result"]["tools"]]
    body = message("tools/call", {"name": "join", "arguments": {"group": "crew"}})
    answer = await ask(mount, PATH, body)
    assert answer.json()["result"]["content"][0]["text"] == "joined crew"
    body = message("tools/call", {"name": "guarded", "arguments": {}})
    assert (await ask(mount, PATH, body)).json()["result"]["content"][0]["text"] == "hello"


@pytest.fixture
def failing():
    stage.tool(name="failing", permission=Fails)(greet)
    yield
    stage.unregister(greet)


@pytest.mark.usefixtures("failing")
async def test_a_bug_in_a_permission_hides_what_it_guards(mount, caplog):
    answer = await ask(mount, PATH, message("tools/list"))
    names = [tool["name"] for tool in answer.json()["result"]["tools"]]
    assert names
    assert "failing" not in names
    assert b"secret" not in answer.body
    assert "secret detail" in caplog.text


@spec("ERR-3", "ERR-5", "RPC-10", "VER-21")
async def test_a_bug_at_the_door_is_an_error_that_tells_nothing(mount, caplog, monkeypatch):
    monkeypatch.setattr(stage, "permission", Fails)
    answer = await ask(mount, PATH, message("tools/list", id="a"))
    assert answer.status == 500
    assert answer.json()["id"] == "a"
    assert answer.json()["error"]["code"] == INTERNAL_ERROR
    assert b"secret" not in answer.body
    assert "secret detail" in caplog.text


def leave() -> str:
    """End the process."""
    sys.exit("secret detail")


async def leave_later() -> str:
    """End the process from the event loop."""
    sys.exit("secret detail")


async def leave_in_a_thread() -> str:
    """End the process from a thread of an async tool."""
    return await sync_to_async(leave)()


async def leave_in_a_group() -> str:
    """End the process together with others."""
    raise BaseExceptionGroup("several", [SystemExit("secret detail")])


def give_up() -> str:
    """Let out what only an event loop understands."""
    raise asyncio.CancelledError("secret detail")


async def give_up_later() -> str:
    """Wait for what somebody cancelled; nobody cancelled this."""
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel("secret detail")
    await task
    return "unreachable"


async def leave_with_context(ctx: Context) -> str:
    """End the process in the middle of a stream."""
    await ctx.areport_progress(1)
    return await leave_later()


ABORTING = (
    leave,
    leave_later,
    leave_in_a_thread,
    leave_in_a_group,
    leave_with_context,
    give_up,
    give_up_later,
)


@pytest.fixture
def aborting():
    for function in ABORTING:
        stage.tool(function)
        stage.resource(f"stage://{function.__name__}")(function)
    yield
    for function in ABORTING:
        stage.unregister(function)


@spec("TOOL-10", "ERR-5")
@pytest.mark.usefixtures("aborting")
@pytest.mark.parametrize("tool", [function.__name__ for function in ABORTING])
@pytest.mark.parametrize("extra", [{}, {envelope.PROGRESS_TOKEN: 1}])
async def test_a_tool_that_wants_to_end_everything_ends_itself(extra, tool, mount, caplog):
    body = message("tools/call", {"name": tool, "arguments": {}}, **extra)
    answer = await ask(mount, PATH, body)
    result = answer.response()["result"]
    assert (answer.status, result["isError"]) == (200, True)
    assert "because of a server error. The error was logged" in result["content"][0]["text"]
    assert b"secret" not in answer.body
    (record,) = (logged for logged in caplog.records if logged.levelno >= logging.ERROR)
    assert record.getMessage() == f"tool {tool!r} failed."
    assert "secret detail" in caplog.text
    knock = message("tools/call", {"name": "knock", "arguments": {"name": "x"}})
    assert (await ask(mount, PATH, knock)).json()["result"]["content"][0]["text"] == "false"


@spec("ERR-5")
@pytest.mark.usefixtures("aborting")
@pytest.mark.parametrize("name", [function.__name__ for function in ABORTING])
async def test_a_resource_that_wants_to_end_everything_ends_itself(name, mount):
    answer = await ask(mount, PATH, message("resources/read", {"uri": f"stage://{name}"}))
    assert answer.response()["error"]["code"] == INTERNAL_ERROR
    assert b"secret" not in answer.body


# What a call leaves behind in its thread ----------------------------------------------------------


def stay_in_a_transaction(name: str) -> str:
    """Enter a transaction and forget about it."""
    transaction.atomic().__enter__()
    return write(name)


async def stay_in_a_transaction_later(name: str) -> str:
    """Enter a transaction from an async tool and forget about it."""
    return await sync_to_async(stay_in_a_transaction)(name)


def hang_up(name: str) -> str:
    """Close the connection that the thread keeps."""
    write(name)
    connection.close()
    return "closed"


def break_down(name: str) -> list[str]:
    """Fail half way through a lazy answer."""

    def lines() -> Iterator[str]:
        with transaction.atomic():
            yield write(name)
            raise RuntimeError("half way")

    return lines()


def write(name: str) -> str:
    """Write a row."""
    Group.objects.create(name=name)
    return f"in a transaction: {connection.in_atomic_block}"


UNTIDY = (stay_in_a_transaction, stay_in_a_transaction_later, hang_up, break_down)


@pytest.fixture
def untidy(settings):
    # With one thread, the next call runs in the thread that the last one used.
    settings.MCP_DJANGO = {"THREADS": 1}
    for function in UNTIDY:
        stage.tool(function)
        stage.tool(name=f"{function.__name__}_atomically", atomic=True)(function)
    stage.tool(write)
    yield
    for function in (*UNTIDY, write):
        stage.unregister(function)


@spec("TOOL-10")
@pytest.mark.usefixtures("untidy")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", ["", "_atomically"])
@pytest.mark.parametrize("tool", [function.__name__ for function in UNTIDY])
async def test_the_next_call_finds_its_thread_tidy(tool, end, mount, caplog):
    for name in ("lost", "lost too"):
        body = message("tools/call", {"name": tool + end, "arguments": {"name": name}})
        assert (await ask(mount, PATH, body)).status == 200
    body = message("tools/call", {"name": "write", "arguments": {"name": "kept"}})
    answer = await ask(mount, PATH, body)
    assert answer.json()["result"]["content"][0]["text"] == "in a transaction: False"
    names = {group.name async for group in Group.objects.all()}
    stays = tool == "hang_up" and not end
    assert names == ({"lost", "lost too", "kept"} if stays else {"kept"})
    assert ("left a transaction open" in caplog.text) is tool.startswith("stay")


async def test_only_http_is_served():
    with pytest.raises(ValueError, match="websocket"):
        await stage.asgi({"type": "websocket"}, None, None)
