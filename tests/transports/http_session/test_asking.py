"""Questions as requests of the server, within the call that asks them (ASK)."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User

from mcp_django.models import Inbox
from mcp_django.storage import inbox
from tests.kit.servers import token_for
from tests.spec import spec
from tests.transports.http_session.asking import (
    EVERYTHING,
    FORMS,
    accept,
    answer,
    asking,
    ready,
    refused,
    sampled,
    text,
)
from tests.transports.http_session.handshakes import VERSIONS, A, B, D, call, request
from tests.transports.http_session.reading import Reader

# How a question travels ------------------------------------------------------------------------


@spec("ASK-4", "ASK-14", "MRT-13")
@pytest.mark.parametrize("tool", ["name", "name_later"])
@pytest.mark.parametrize("version", FORMS)
async def test_a_tool_asks_and_goes_on(version, tool, streaming):
    peer = await ready(streaming, version=version)
    async with asking(peer, call(tool)) as reader:
        question = await reader.message()
        assert (question["method"], question["jsonrpc"]) == ("elicitation/create", "2.0")
        await answer(peer, question, accept("Ada"))
        (response,) = await reader.rest()
    assert response["id"] == 1
    assert text(response) == ("Hello Ada." if tool == "name" else "0 groups, then 1")


@spec("ASK-4", "HTTP-11")
@pytest.mark.parametrize("tool", ["name", "name_later"])
async def test_a_page_of_the_site_may_read_a_question(tool, streaming):
    peer = await ready(streaming)
    peer.headers["origin"] = "http://testserver"
    async with peer.stream(call(tool)) as connection:
        start = await connection.part()
        headers = {name.lower(): value for name, value in start["headers"]}
        assert headers[b"access-control-allow-origin"] == b"http://testserver"
        reader = Reader(connection)
        await answer(peer, await reader.message(), accept("Ada"))
        await reader.rest()


@spec("ASK-4")
@pytest.mark.parametrize("tool", ["name", "name_later"])
async def test_a_process_that_was_idle_before_asks(tool, streaming, monkeypatch):
    peer = await ready(streaming)
    # As after ten seconds without a request: the stream of the question needs a heartbeat.
    monkeypatch.setattr(inbox, "_last_heartbeats", {})
    async with asking(peer, call(tool)) as reader:
        await answer(peer, await reader.message(), accept("Ada"))
        (response,) = await reader.rest()
    assert "error" not in response


@spec("ASK-2", "MRT-13")
async def test_what_was_written_before_the_question_is_taken_back(streaming):
    peer = await ready(streaming)
    async with asking(peer, call("keep_name")) as reader:
        question = await reader.message()
        assert await Group.objects.acount() == 0
        await answer(peer, question, accept("after"))
        await reader.rest()
    assert {group.name async for group in Group.objects.all()} == {"before", "after"}


@spec("ASK-2", "RPC-3")
@pytest.mark.parametrize("version", FORMS)
async def test_questions_follow_one_another_and_nothing_is_said_twice(version, streaming):
    peer = await ready(streaming, version=version)
    async with asking(peer, call("two", progress="p", id="ask-1-1")) as reader:
        assert (await reader.message())["params"]["progress"] == 1
        first = await reader.message()
        await answer(peer, first, accept(20))
        assert (await reader.message())["params"]["progress"] == 2
        second = await reader.message()
        await answer(peer, second, accept(22))
        *before, response = await reader.rest()
    assert [message["params"]["progress"] for message in before] == [3]
    assert (response["id"], text(response)) == ("ask-1-1", "42")
    assert len({first["id"], second["id"], "ask-1-1"}) == 3


@spec("ASK-1", "ASK-6", "ASK-7")
@pytest.mark.parametrize("version", FORMS)
async def test_several_questions_are_asked_at_once(version, streaming):
    peer = await ready(streaming, version=version)
    async with asking(peer, call("everything")) as reader:
        questions = [await reader.message() for _ in range(3)]
        replies: dict[str, Any] = {
            "elicitation/create": accept("tea"),
            "sampling/createMessage": sampled(),
            "roots/list": {"roots": [{"uri": "file:///home"}]},
        }
        # In another order than they were asked in.
        for question in reversed(questions):
            await answer(peer, question, replies[question["method"]])
        (response,) = await reader.rest()
    assert text(response) == "tea hi file:///home"


@pytest.mark.parametrize(
    ("body", "member"),
    [
        (request("prompts/get", {"name": "toast"}), "messages"),
        (request("resources/read", {"uri": "parlor://guests/ada"}), "contents"),
    ],
)
@spec("ASK-2")
async def test_prompts_and_resources_ask_too(body, member, streaming):
    peer = await ready(streaming)
    async with asking(peer, body) as reader:
        await answer(peer, await reader.message(), accept(7 if member == "contents" else "Ada"))
        (response,) = await reader.rest()
    assert len(response["result"][member]) == 1


@spec("ASK-5")
async def test_a_waiting_call_holds_no_thread(streaming, settings):
    settings.MCP_DJANGO = {"THREADS": 1, "QUEUE_SECONDS": 5}
    peer = await ready(streaming)
    async with asking(peer, call("name", id=1)) as first, asking(peer, call("name", id=2)) as other:
        questions = [await first.message(), await other.message()]
        answered = await peer.send(call("can", id=3, what="roots"))
        assert text(answered.response()) == "true"
        for question in questions:
            await answer(peer, question, accept("Ada"))
        assert [text((await reader.rest())[0]) for reader in (first, other)] == ["Hello Ada."] * 2


# Where nobody can be asked ---------------------------------------------------------------------

NEEDED = [
    ("name", "elicitation", FORMS),
    ("think", "sampling", VERSIONS),
    ("places", "roots", VERSIONS),
    ("use_tools", "sampling.tools", (D,)),
]


@spec("ASK-1", "VER-18", "VER-17")
@pytest.mark.parametrize(("tool", "capability", "versions"), NEEDED)
@pytest.mark.parametrize("version", VERSIONS)
async def test_only_what_was_declared_is_asked(version, tool, capability, versions, streaming):
    others = {name: value for name, value in EVERYTHING.items() if name != capability}
    if capability == "sampling.tools":
        others["sampling"] = {}
    peer = await ready(streaming, version=version, **others)
    assert f"needs a client that declares {capability}" in await refused(peer, call(tool))
    able = await ready(streaming, version=version)
    supports = (await able.send(call("can", what=capability))).response()
    expected = version in versions
    assert text(supports) == str(expected).lower()
    if not expected:
        assert capability in await refused(able, call(tool))


@spec("ASK-3", "ASK-5")
@pytest.mark.parametrize("tool", ["name", "name_later", "think", "places"])
@pytest.mark.parametrize("version", FORMS)
async def test_who_wants_one_document_is_not_asked(version, tool, mount):
    # A question is not sent on the GET stream if the POST has no stream (ASK-3): it would arrive
    # apart from the request that it belongs to, and hold a thread of WSGI until the answer.
    peer = await ready(mount, version=version)
    text_of = await refused(peer, call(tool), accept="application/json")
    assert "needs a client that declares" in text_of
    assert "This client does, but requests to the client need a stream" in text_of


@spec("ASK-3")
async def test_an_open_get_stream_makes_no_difference(streaming):
    peer = await ready(streaming)
    async with peer.standing() as connection:
        await Reader(connection).comment()
        assert "elicitation" in await refused(peer, call("name"), accept="application/json")


@spec("ASK-5", "VER-18")
@pytest.mark.parametrize(
    "body",
    [
        request("prompts/get", {"name": "toast"}),
        request("resources/read", {"uri": "parlor://guests/ada"}),
    ],
)
async def test_what_is_no_tool_fails_with_an_error(body, streaming):
    peer = await ready(streaming, roots={})
    response = (await peer.send(body)).response()
    assert "elicitation" in response["error"]["message"]


# What comes back -------------------------------------------------------------------------------


@spec("ASK-14")
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
@pytest.mark.parametrize("version", FORMS)
async def test_three_actions_are_told_apart(version, action, streaming):
    peer = await ready(streaming, version=version)
    async with asking(peer, call("consent")) as reader:
        await answer(peer, await reader.message(), {"action": action})
        (response,) = await reader.rest()
    assert text(response) == action


@spec("ASK-14", "ASK-5")
@pytest.mark.parametrize(
    "unfit", [{}, {"value": None}, {"value": 5}, {"value": ["x"]}, {"other": "x"}]
)
@pytest.mark.parametrize("version", FORMS)
async def test_content_that_does_not_fit_is_asked_for_again(version, unfit, streaming):
    peer = await ready(streaming, version=version)
    async with asking(peer, call("name")) as reader:
        first = await reader.message()
        await answer(peer, first, {"action": "accept", "content": unfit})
        second = await reader.message()
        assert "Please correct this" in second["params"]["message"]
        assert second["id"] != first["id"]
        more = {"value": "Ada", "extra": {"keys": ["are", "ignored"]}}
        await answer(peer, second, {"action": "accept", "content": more})
        (response,) = await reader.rest()
    assert text(response) == "Hello Ada."


@spec("ASK-5")
@pytest.mark.parametrize(
    "nonsense", [{}, {"action": 5}, {"action": "maybe"}, {"action": "accept", "content": [1]}]
)
async def test_nonsense_ends_the_call_and_nothing_else(nonsense, streaming):
    peer = await ready(streaming)
    async with asking(peer, call("name")) as reader:
        await answer(peer, await reader.message(), nonsense)
        (response,) = await reader.rest()
    assert response["error"]["code"] == -32602
    assert await peer.result("ping") == {}


@spec("ASK-5")
@pytest.mark.parametrize(
    ("tool", "code"), [("name", -32602), ("think", -1), ("places", -32601), ("everything", -1)]
)
@pytest.mark.parametrize("version", FORMS)
async def test_a_refusal_is_a_text_for_the_model(version, tool, code, streaming):
    peer = await ready(streaming, version=version)
    async with asking(peer, call(tool)) as reader:
        for _ in range(3 if tool == "everything" else 1):
            question = await reader.message()
            error = {"code": code, "message": "User rejected it"}
            body = {"jsonrpc": "2.0", "id": question["id"], "error": error}
            assert (await peer.send(body)).status == 202
        (response,) = await reader.rest()
    assert response["result"]["isError"] is True
    assert "User rejected it" in text(response)


@spec("ASK-4", "ASK-5", "HTTP-22")
@pytest.mark.parametrize("version", FORMS)
async def test_the_first_answer_counts(version, streaming):
    peer = await ready(streaming, version=version)
    async with asking(peer, call("name")) as reader:
        question = await reader.message()
        await answer(peer, question, accept("Ada"))
        await answer(peer, question, accept("Ben"))
        (response,) = await reader.rest()
        assert text(response) == "Hello Ada."
        await answer(peer, question, accept("Cy"))
    # No answer stays stored for a call that will never read it.
    assert await Inbox.objects.acount() == 0


@spec("ASK-4", "HTTP-22")
@pytest.mark.parametrize(
    "unknown", ["ask-1-1", "ask-zz-1", "ask-1", "server-1", "", 5, "ask-7fffffffffffffff0-1"]
)
async def test_an_answer_to_nothing_is_dropped(unknown, mount):
    peer = await ready(mount)
    await answer(peer, {"id": unknown}, accept("Ada"))
    assert await Inbox.objects.acount() == 0


@spec("ASK-4", "ASK-19", "SES-6")
@pytest.mark.parametrize("version", FORMS)
async def test_nobody_else_answers(version, streaming):
    tokens = []
    for username in ("ada", "ben"):
        user = await sync_to_async(User.objects.create_user)(username)
        tokens.append(f"Bearer {(await sync_to_async(token_for)(user))[1]}")
    peer = await ready(streaming, version=version, token=tokens[0])
    other = await ready(streaming, version=version, token=tokens[0])
    async with asking(peer, call("name")) as reader:
        question = await reader.message()
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": accept("Mallory")}
        for thief in (tokens[1], None):
            assert (await peer.send(reply, authorization=thief)).status == 404
        # An answer from another session of the same user is accepted, and has no effect.
        await answer(other, question, accept("Mallory"))
        await answer(peer, question, accept("Ada"))
        (response,) = await reader.rest()
    assert text(response) == "Hello Ada."


@spec("ASK-5", "CAN-7")
@pytest.mark.parametrize("tool", ["name", "think", "places"])
@pytest.mark.parametrize("version", FORMS)
async def test_silence_ends_a_question(version, tool, streaming, settings):
    settings.MCP_DJANGO = {"CLIENT_REQUEST_TIMEOUT": 0.05}
    peer = await ready(streaming, version=version)
    async with asking(peer, call(tool)) as reader:
        question = await reader.message()
        taken_back = await reader.message()
        (response,) = await reader.rest()
    assert taken_back["method"] == "notifications/cancelled"
    assert taken_back["params"]["requestId"] == question["id"]
    assert response["result"]["isError"] is True
    assert "the client did not answer" in text(response)
    await answer(peer, question, accept("Ada"))
    assert await Inbox.objects.acount() == 0


@spec("CAN-7")
@pytest.mark.parametrize("version", [A, B])
async def test_silence_ends_a_question_of_the_oldest_clients(version, streaming, settings):
    settings.MCP_DJANGO = {"CLIENT_REQUEST_TIMEOUT": 0.05}
    peer = await ready(streaming, version=version)
    async with asking(peer, call("think")) as reader:
        question = await reader.message()
        assert (await reader.message())["params"]["requestId"] == question["id"]
        assert "the client did not answer" in text((await reader.rest())[0])


@spec("ASK-5", "HTTP-16")
async def test_a_client_that_leaves_answers_later(streaming):
    peer = await ready(streaming)
    async with asking(peer, call("name")) as reader:
        question = await reader.message()
    await answer(peer, question, accept("Ada"))
    async with peer.standing(last_event_id=reader.ids[-1]) as connection:
        (response,) = await Reader(connection).rest()
    assert text(response) == "Hello Ada."


@spec("ASK-5", "SES-7")
async def test_the_end_of_the_session_ends_a_call_that_waits(streaming):
    peer = await ready(streaming)
    async with asking(peer, call("name")) as reader:
        await reader.message()
        assert (await peer.delete()).status == 204
        assert await reader.rest() == []
