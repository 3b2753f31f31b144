"""`MCPClient` over every transport: the same tests at each revision that it carries."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest
from django.db.models.functions import Now

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.exceptions import AuthenticationRequired, InsufficientScope, MCPError
from mcp_django.models import Session
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.test import DECLINE, MCPClient
from mcp_django.testing.transports import HTTPChannel, LineChannel
from tests.kit.servers import person
from tests.testing.till import shop, staff

A, B, C, D, E = sorted(version for version in REVISIONS if version[0].isdigit())
TRANSPORTS = ("memory", "http", "stdio")
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mounts(*TRANSPORTS)]
EVERY = [(A, "sse"), *((version, transport) for version in REVISIONS for transport in TRANSPORTS)]
ASKING = [(version, transport) for version, transport in EVERY if version not in (A, B)]
LATEST = [(E, transport) for transport in TRANSPORTS]


@pytest.fixture(params=EVERY, ids="-".join)
def mine(request):
    """Yield a client of a server for everybody, at each revision over each transport."""
    version, transport = request.param
    with MCPClient(server=shop, protocol_version=version, transport=transport) as client:
        yield client


@pytest.fixture(params=ASKING, ids="-".join)
def form_client(request):
    """Yield the same client where forms can be asked."""
    version, transport = request.param
    with MCPClient(server=shop, protocol_version=version, transport=transport) as client:
        yield client


@pytest.mark.every_mount
def test_a_tool_is_called(mine):
    result = mine.call_tool("add", {"a": 1, "b": 2})
    assert result.text == '{"sum":3}'
    assert not result.is_error
    if mine._client.revision.version not in (A, B):
        assert result.structured == {"sum": 3}


async def test_the_first_requests_may_come_together(mine):
    calls = (mine.acall_tool("add", {"a": 1, "b": n}) for n in range(3))
    assert [result.text for result in await asyncio.gather(*calls)] == [
        f'{{"sum":{n}}}' for n in (1, 2, 3)
    ]
    assert await Session.objects.acount() <= 1


def test_failures_are_told_apart(mine):
    failed = mine.call_tool("fail", check=False)
    assert (failed.is_error, failed.text) == (True, "Not today.")
    with pytest.raises(ZeroDivisionError, match="a bug"):
        mine.call_tool("stumble")
    with pytest.raises(MCPError, match="No tool named 'nothing'") as caught:
        mine.call_tool("nothing")
    assert caught.value.code == -32602
    assert mine.call_tool("add", {"a": 1, "b": 1}).text == '{"sum":2}'


def test_lists_are_read_to_the_last_page(mine):
    assert [tool["name"] for tool in mine.list_tools()] == sorted(shop.tools)
    assert [resource["uri"] for resource in mine.list_resources()] == ["transported://table"]
    assert [prompt["name"] for prompt in mine.list_prompts()] == ["toast"]


def test_resources_prompts_and_completions_are_there(mine):
    assert mine.read_resource("transported://table")[0]["text"] == "cups"
    (message,) = mine.get_prompt("toast", {"name": "Zoë"})
    assert message["content"]["text"] == "To Zoë!"
    assert mine.complete("toast", "name", "A") == ["Ada"]


def test_progress_and_logs_are_heard(mine):
    result = mine.call_tool("count", {"n": 3})
    assert result.text == "counted to 3"
    assert [notification["progress"] for notification in result.progress] == [1, 2, 3]
    assert [record["data"] for record in result.logs] == ["done"]
    assert mine.call_tool("count", {"n": 0}).progress == []


def test_the_model_is_asked(mine):
    assert mine.call_tool("think", answers=["hello"]).text == "hello"


def test_forms_are_answered(form_client):
    assert form_client.call_tool("greet", answers=["Hi", "Ada"]).text == "Hi Ada"
    assert form_client.call_tool("people", answers=["crew"]).text == "1 and crew"
    assert form_client.call_tool("greet", answers=[DECLINE], check=False).is_error


def test_open_questions_are_shown(form_client):
    (question,) = form_client.call_tool("greet", answers=["Hi"]).questions
    assert question["params"]["message"] == "A name?"
    # The abandoned call does not affect the next one.
    assert form_client.call_tool("greet", answers=["Hi", "Ben"]).text == "Hi Ben"


@pytest.mark.parametrize("channel", [HTTPChannel, LineChannel])
def test_a_call_with_an_open_question_is_cancelled(channel, monkeypatch):
    cancelled: list[str] = []
    cancel = channel.cancel

    async def note(self: Any, message: dict[str, Any]) -> None:
        cancelled.append(message["params"]["name"])
        await cancel(self, message)

    monkeypatch.setattr(channel, "cancel", note)
    transport = "http" if channel is HTTPChannel else "stdio"
    with MCPClient(server=shop, protocol_version=D, transport=transport) as client:
        assert client.call_tool("greet", answers=["Hi", "Ada"]).text == "Hi Ada"
        assert cancelled == []
        assert client.call_tool("greet").questions
        assert cancelled == ["greet"]


def test_an_unfit_answer_is_a_mistake_and_gives_the_call_up(form_client):
    with pytest.raises(AssertionError, match="answers only elicitation/create"):
        form_client.call_tool("think", answers=[DECLINE])
    assert form_client.call_tool("think", answers=["hello"]).text == "hello"


def test_a_call_that_hangs_up_is_read_on():
    with MCPClient(server=shop, protocol_version=D, transport="http") as client:
        result = client.call_tool("pause")
    assert (result.text, [notification["progress"] for notification in result.progress]) == (
        "back",
        [1, 2],
    )


def test_left_over_answers_are_a_mistake(form_client):
    with pytest.raises(AssertionError, match="did not ask for the answers"):
        form_client.call_tool("greet", answers=["Hi", "Ada", "Ben"])


async def test_asynchronous_tests_have_their_twins(form_client):
    assert (await form_client.acall_tool("people", answers=["crew"])).text == "1 and crew"
    assert (await form_client.aread_resource("transported://table"))[0]["text"] == "cups"
    await form_client.aclose()


@pytest.mark.parametrize(("version", "transport"), EVERY)
def test_the_user_is_let_in(version, transport):
    options: dict[str, Any] = {"protocol_version": version, "transport": transport}
    ada = person()
    with MCPClient(server=staff, user=ada, **options) as client:
        assert client.call_tool("whoami").text == "ada"
    with (
        MCPClient(server=staff, **options) as client,
        pytest.raises(AuthenticationRequired),
    ):
        client.call_tool("whoami")
    with MCPClient(server=shop, user=ada, scopes=["shop:write"], **options) as client:
        assert client.call_tool("ship").text == "shipped"
    with MCPClient(server=shop, user=ada, **options) as client:
        assert client.call_tool("ship").text == "shipped"
    with (
        MCPClient(server=shop, user=ada, scopes=[], **options) as client,
        pytest.raises(InsufficientScope) as caught,
    ):
        client.call_tool("ship")
    assert caught.value.scopes == ("shop:write",)


@pytest.mark.parametrize(("version", "transport"), LATEST)
async def test_changes_are_heard(version, transport):
    client = MCPClient(server=shop, protocol_version=version, transport=transport)
    async with client, client.listen(uris=["transported://table"]) as messages:
        first = await anext(messages)
        assert first["method"] == "notifications/subscriptions/acknowledged"
        shop.notify_resource_updated("transported://table")
        second = await anext(messages)
        assert second["params"]["uri"] == "transported://table"


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("version", [D, E])
async def test_a_refused_subscription_is_an_error(version, transport):
    bare = MCPServer("transported-bare", permission=AllowAny)
    async with MCPClient(server=bare, protocol_version=version, transport=transport) as client:
        with pytest.raises(MCPError) as caught:
            async with client.listen(lists=["tools"]):
                pass
        assert caught.value.code == -32601


def test_a_client_that_nobody_closes_leaves_no_thread():
    before = set(threading.enumerate())
    client = MCPClient(server=shop, transport="http")
    client.list_tools()
    (thread,) = [
        candidate
        for candidate in set(threading.enumerate()) - before
        if candidate.name == "mcp-test-client"
    ]
    there = weakref.ref(client)
    del client
    # The client is young; looking at all objects of the process would take half a second.
    gc.collect(1)
    if there() is not None:
        gc.collect()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", ["Nord", "Süd", " padded "])
def test_arguments_are_repeated_in_headers(name):
    with MCPClient(server=shop, transport="http") as client:
        assert client.call_tool("mirrored", {"region": name}).text == name


@pytest.mark.parametrize("version", [A, B, C, D])
def test_a_session_ends_with_its_client(version):
    with MCPClient(server=shop, protocol_version=version, transport="http") as client:
        client.list_tools()
        assert Session.objects.filter(expires_at__gt=Now()).count() == 1
    assert Session.objects.filter(expires_at__gt=Now()).count() == 0


def test_a_closed_client_begins_anew():
    client = MCPClient(server=shop, protocol_version=D, transport="http")
    for _ in range(2):
        assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
        client.close()


def test_an_unknown_transport_names_the_known_ones():
    with pytest.raises(ValueError, match=r"'pigeon'.*memory, http, sse, stdio"):
        MCPClient(transport="pigeon")
    with pytest.raises(ValueError, match="'sse' supports only 2024-11-05, not '2026-07-28'"):
        MCPClient(transport="sse")
