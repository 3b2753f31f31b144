"""Log and progress messages of calls in a session (LOG, PRG)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mcp_django.components import context
from tests.spec import spec
from tests.transports.http_session.asking import PARLOR
from tests.transports.http_session.handshakes import (
    VERSIONS,
    A,
    B,
    C,
    D,
    Peer,
    call,
    code_of,
    opened,
    request,
)
from tests.transports.http_session.reading import Reader

LEVELS = ["debug", "info", "warning", "error"]


async def logged(peer: Peer, **options: Any) -> list[str]:
    """Send a call, and return the levels of the log messages that arrive."""
    sent = await peer.send(call("levels", **options))
    *before, response = sent.messages()
    assert "result" in response
    assert all(message["params"]["logger"] == "parlor" for message in before)
    return [message["params"]["data"]["said"] for message in before]


async def set_level(peer: Peer, level: str) -> None:
    assert await peer.result("logging/setLevel", {"level": level}) == {}


@spec("LOG-1", "LOG-2", "LOG-8")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_level_holds_from_when_it_is_set(version, streaming):
    peer = Peer(streaming, PARLOR, version=version)
    assert (await peer.open())["capabilities"]["logging"] == {}
    # Before that, the server chooses the level: `info`, if there is a stream anyway.
    assert await logged(peer, progress=1) == LEVELS[1:]
    assert await logged(peer) == []
    for place, level in enumerate(LEVELS):
        await set_level(peer, level)
        assert await logged(peer) == LEVELS[place:]
    await set_level(peer, "emergency")
    assert await logged(peer, progress=1) == []


@spec("LOG-2")
@pytest.mark.parametrize(
    "params", [{"level": "loud"}, {"level": "INFO"}, {"level": ""}, {"level": 3}, {}, None]
)
@pytest.mark.parametrize("version", VERSIONS)
async def test_an_unknown_level_is_refused_and_the_old_one_holds(version, params, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    await set_level(peer, "error")
    sent = await peer.send(request("logging/setLevel", params))
    assert (sent.status, code_of(sent)) == (200, -32602)
    assert await logged(peer) == ["error"]


@spec("LOG-3")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_level_belongs_to_one_session(version, streaming):
    loud = await opened(streaming, PARLOR, version=version)
    quiet = await opened(streaming, PARLOR, version=version)
    await set_level(loud, "debug")
    await set_level(quiet, "error")
    assert await logged(loud) == LEVELS
    assert await logged(quiet) == ["error"]


@spec("LOG-8", "HTTP-6", "PRG-1")
@pytest.mark.parametrize("version", [B, C, D])
async def test_messages_travel_with_their_call_and_not_on_the_get_stream(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    await set_level(peer, "debug")
    async with peer.standing() as connection:
        standing = Reader(connection)
        await standing.comment()
        assert await logged(peer) == LEVELS
        sent = await peer.send(call("count", progress=1, n=2))
        assert len(sent.messages()) == 3
        assert (await peer.delete()).status == 204
        assert await standing.rest() == []


@spec("LOG-2", "LOG-8")
async def test_who_takes_one_document_gets_the_answer_alone(mount):
    peer = await opened(mount, PARLOR)
    if mount == "wsgi":
        sent = await peer.send(request("logging/setLevel", {"level": "debug"}))
        assert code_of(sent) == -32601
    else:
        await set_level(peer, "debug")
    sent = await peer.send(call("levels", progress=1), accept="application/json")
    assert not sent.is_stream
    assert sent.json()["id"] == 1


@spec("PRG-1", "PRG-6")
@pytest.mark.parametrize("token", [0, 7, "7", ""])
@pytest.mark.parametrize("version", VERSIONS)
async def test_progress_names_its_token(version, token, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    for request_id in (1, 2):
        sent = await peer.send(call("count", id=request_id, progress=token, n=2))
        *before, response = sent.messages()
        assert response["id"] == request_id
        assert [message["params"] for message in before] == [
            {"progressToken": token, "progress": n, "total": 2} for n in (1, 2)
        ]
        assert all(type(message["params"]["progressToken"]) is type(token) for message in before)


@spec("PRG-1")
@pytest.mark.parametrize("token", [1.5, True, [1], {"a": 1}])
async def test_what_is_no_token_is_refused(token, streaming):
    peer = await opened(streaming, PARLOR)
    sent = await peer.send(call("count", progress=token, n=2))
    assert (sent.status, code_of(sent)) == (200, -32602)


@spec("PRG-1")
@pytest.mark.parametrize("version", VERSIONS)
async def test_without_a_token_there_is_no_progress(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    await set_level(peer, "debug")
    sent = await peer.send(call("count", n=2))
    assert len(sent.messages()) == 1


@spec("PRG-2", "PRG-5")
@pytest.mark.parametrize("version", VERSIONS)
async def test_progress_grows_and_has_words_where_there_is_a_member_for_them(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    *before, _ = (await peer.send(call("stagger", progress=1))).messages()
    assert [message["params"]["progress"] for message in before] == [1, 2.5, 3]
    words = None if version == A else "last"
    assert before[-1]["params"].get("message") == words


@pytest.mark.django_db(transaction=True)
async def test_progress_that_cannot_be_sent_is_told_once_in_the_log(caplog, monkeypatch, settings):
    settings.ROOT_URLCONF = "tests.transports.http_session.parlor"
    monkeypatch.setattr(context, "_progress_warning_logged", threading.Event())
    peer = await opened("wsgi", PARLOR)
    for token in (0, "a"):
        answer = await peer.send(call("count", progress=token, n=2))
        assert answer.response()["result"]["content"]
    lines = [
        record.getMessage()
        for record in caplog.records
        if "cannot stream it" in record.getMessage()
    ]
    assert len(lines) == 1
    assert "ASGI" in lines[0]


@pytest.mark.django_db(transaction=True)
async def test_progress_that_no_client_asked_for_is_not_told(caplog, monkeypatch, settings):
    settings.ROOT_URLCONF = "tests.transports.http_session.parlor"
    monkeypatch.setattr(context, "_progress_warning_logged", threading.Event())
    peer = await opened("wsgi", PARLOR)
    await peer.send(call("count", n=2))
    assert not [record for record in caplog.records if "cannot stream it" in record.getMessage()]
