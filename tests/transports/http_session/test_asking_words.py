"""The form of questions at each revision, and pages that users are sent to (ASK)."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.protocol.errors import URL_ELICITATION_REQUIRED
from tests.spec import spec
from tests.transports.http_session.asking import answer, asking, ready, refused, sampled, text
from tests.transports.http_session.handshakes import VERSIONS, A, C, D, Peer, call
from tests.transports.http_session.parlor import paid

SIZES = "Two sizes."


async def question_params(peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the first question of a call, and end the session."""
    async with asking(peer, body) as reader:
        question = await reader.message()
        await peer.delete()
    return dict(question["params"])


@spec("ASK-11", "ASK-12")
async def test_a_form_of_the_first_revision_with_forms(streaming):
    peer = await ready(streaming, version=C)
    assert await question_params(peer, call("order")) == {
        "message": "What would you like?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "what": {"type": "string"},
                "day": {"type": "string", "format": "date"},
                "size": {"type": "string", "enum": ["small", "large"], "description": SIZES},
                "cups": {"type": "integer"},
                "strength": {"type": "number"},
                "milk": {"type": "boolean", "default": True},
                "kind": {"type": "string", "enum": ["green", "black"]},
            },
        },
    }


@spec("ASK-11")
async def test_a_form_of_2025_11_25(streaming):
    peer = await ready(streaming)
    params = await question_params(peer, call("order"))
    assert params["mode"] == "form"
    assert params["requestedSchema"]["properties"] == {
        "what": {"type": "string", "default": "tea"},
        "day": {"type": "string", "format": "date", "default": "2026-01-02"},
        "size": {
            "type": "string",
            "enum": ["small", "large"],
            "default": "small",
            "description": SIZES,
        },
        "cups": {"type": "integer", "default": 2},
        "strength": {"type": "number", "default": 0.5},
        "milk": {"type": "boolean", "default": True},
        "kind": {"type": "string", "enum": ["green", "black"], "default": "green"},
    }


@spec("ASK-11")
@pytest.mark.parametrize(
    ("version", "field"),
    [
        (C, {"type": "string", "enum": ["r"], "enumNames": ["Red"]}),
        (D, {"type": "string", "oneOf": [{"const": "r", "title": "Red"}], "default": "r"}),
    ],
)
async def test_choices_have_labels(version, field, streaming):
    peer = await ready(streaming, version=version)
    params = await question_params(peer, call("color"))
    assert params["requestedSchema"]["properties"] == {"color": field}


@spec("ASK-11")
async def test_several_choices_are_asked_where_there_is_a_word_for_them(streaming):
    old = await ready(streaming, version=C)
    assert "the multiple-choice field 'extras'" in await refused(old, call("extras"))
    params = await question_params(await ready(streaming), call("extras"))
    (field,) = params["requestedSchema"]["properties"].values()
    assert (field["type"], field["items"]["enum"]) == ("array", ["milk", "sugar"])


@spec("ASK-7", "ASK-8")
@pytest.mark.parametrize("version", VERSIONS)
async def test_sampling_sends_what_every_revision_knows(version, streaming):
    peer = await ready(streaming, version=version)
    async with asking(peer, call("think")) as reader:
        question = await reader.message()
        await answer(peer, question, sampled(stopReason="endTurn"))
        (response,) = await reader.rest()
    assert question["params"] == {
        "messages": [
            {"role": role, "content": {"type": "text", "text": words}}
            for role, words in (("user", "Hi."), ("assistant", "Hello."), ("user", "And?"))
        ],
        "maxTokens": 9,
        "systemPrompt": "Be brief.",
        "temperature": 0.5,
        "stopSequences": ["."],
        "modelPreferences": {"hints": [{"name": "small"}], "speedPriority": 1},
        "metadata": {"a": 1},
    }
    assert text(response) == "assistant m endTurn: hi"


@spec("ASK-10")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_message_is_a_block_where_lists_are_unknown(version, streaming):
    peer = await ready(streaming, version=version)
    many = [{"type": "text", "text": "one"}, {"type": "text", "text": "more"}]
    async with asking(peer, call("think_again")) as reader:
        # A list is accepted even from a client of an older revision.
        await answer(peer, await reader.message(), sampled(many))
        again = (await reader.message())["params"]["messages"]
        await peer.delete()
    if version == D:
        assert [message["content"] for message in again][1] == many
        return
    assert [message["content"]["text"] for message in again] == ["One?", "one", "more", "Two?"]
    assert [message["role"] for message in again] == ["user", "assistant", "assistant", "user"]


@spec("ASK-10")
@pytest.mark.parametrize("version", VERSIONS)
async def test_sound_is_played_to_those_who_have_a_word_for_it(version, streaming):
    peer = await ready(streaming, version=version)
    if version == A:
        assert "audio" in await refused(peer, call("listen_to"))
        return
    (message,) = (await question_params(peer, call("listen_to")))["messages"]
    assert message["content"] == {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}


@spec("ASK-1", "ASK-9", "ASK-10")
async def test_a_model_is_lent_tools(streaming):
    peer = await ready(streaming)
    use = {"type": "tool_use", "id": "1", "name": "weather", "input": {}}
    async with asking(peer, call("use_tools")) as reader:
        question = await reader.message()
        assert question["params"]["tools"][0]["name"] == "weather"
        assert question["params"]["toolChoice"] == {"mode": "auto"}
        await answer(peer, question, sampled([use], stopReason="toolUse"))
        (response,) = await reader.rest()
    assert text(response) == "weather"


@spec("ASK-6")
@pytest.mark.parametrize("version", VERSIONS)
async def test_roots_are_asked_for_anew_in_each_call(version, streaming):
    peer = await ready(streaming, version=version)
    for name in ("one", "two"):
        async with asking(peer, call("places")) as reader:
            question = await reader.message()
            assert (question["method"], question.get("params", {})) == ("roots/list", {})
            roots = {"roots": [{"uri": f"file:///{name}", "name": name}]}
            await answer(peer, question, roots)
            (response,) = await reader.rest()
        assert text(response) == f"{name}=file:///{name}"
        changed = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
        assert (await peer.send(changed)).status == 202


# Pages -----------------------------------------------------------------------------------------


@pytest.fixture
def bill():
    yield "7"
    paid.clear()


@spec("ASK-13", "ASK-14")
async def test_a_page_is_asked_for_until_it_is_done(streaming, bill):
    peer = await ready(streaming)
    async with asking(peer, call("pay", bill=bill)) as reader:
        question = await reader.message()
        assert {**question["params"], "elicitationId": None} == {
            "mode": "url",
            "message": "Please pay.",
            "url": "https://pay.example/desk",
            "elicitationId": None,
        }
        await answer(peer, question, {"action": "accept"})
        again = await reader.message()
        # It is the same page, so it has the same id.
        assert again["params"]["elicitationId"] == question["params"]["elicitationId"]
        paid.add(bill)
        await answer(peer, again, {"action": "accept"})
        (response,) = await reader.rest()
    assert text(response) == "paid 7"


@spec("ASK-13")
async def test_two_pages_have_two_ids(streaming):
    peer = await ready(streaming)
    async with asking(peer, call("pay_twice")) as reader:
        questions = [await reader.message(), await reader.message()]
        for question in questions:
            await answer(peer, question, {"action": "accept"})
        assert text((await reader.rest())[0]) == "paid twice"
    assert len({question["params"]["elicitationId"] for question in questions}) == 2


@pytest.mark.parametrize("tool", ["pay", "pay_later", "pay_or_nothing"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_page_that_is_done_is_not_asked_for(version, tool, streaming, bill):
    paid.add(bill)
    peer = await ready(streaming, version=version)
    response = (await peer.send(call(tool, bill=bill))).response()
    if tool == "pay_or_nothing" and version != D:
        assert response["result"]["isError"] is True
    else:
        assert text(response) == "paid 7"


@spec("ASK-18", "ASK-13")
@pytest.mark.parametrize("tool", ["pay", "pay_later", "pay_or_nothing"])
async def test_who_cannot_be_asked_is_sent_to_the_page_by_an_error(tool, mount, bill):
    peer = await ready(mount)
    plain = {"accept": "application/json"}
    can = await peer.send(call("can", what="elicitation.url"), **plain)
    assert text(can.response()) == "true"
    sent = await peer.send(call(tool, bill=bill), **plain)
    error = sent.response()["error"]
    assert (sent.status, error["code"]) == (200, URL_ELICITATION_REQUIRED)
    (page,) = error["data"]["elicitations"]
    assert page.pop("elicitationId")
    assert page == {"mode": "url", "message": "Please pay.", "url": "https://pay.example/desk"}
    paid.add(bill)
    assert text((await peer.send(call(tool, bill=bill), **plain)).response()) == "paid 7"


@spec("ASK-18")
async def test_several_pages_are_named_by_one_error(mount):
    peer = await ready(mount)
    sent = await peer.send(call("pay_twice"), accept="application/json")
    pages = sent.response()["error"]["data"]["elicitations"]
    assert [page["url"] for page in pages] == ["https://pay.example/1", "https://pay.example/2"]
    assert len({page["elicitationId"] for page in pages}) == 2


@spec("ASK-18", "ASK-1")
@pytest.mark.parametrize("tool", ["pay", "pay_and_sign"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_error_is_for_those_alone_who_know_it(version, tool, mount, bill):
    if version == D and tool == "pay":
        peer = await ready(mount, elicitation={})
    else:
        peer = await ready(mount, version=version)
    await refused(
        peer, call(tool, **({"bill": bill} if tool == "pay" else {})), accept="application/json"
    )
