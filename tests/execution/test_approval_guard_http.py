"""Calls that require an approval, over HTTP, with the way of each revision's clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import SyncToAsync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connections

from mcp_django.models import Approval
from mcp_django.protocol import envelope
from mcp_django.protocol.errors import URL_ELICITATION_REQUIRED
from tests.execution.approval_site import URLS, decide, page_of
from tests.kit.drivers import Answer, message
from tests.kit.servers import person, token_for
from tests.spec import spec
from tests.transports.http_session.asking import answer, asking
from tests.transports.http_session.handshakes import VERSIONS, D, Peer, call
from tests.transports.mounts import ask, in_thread

PATH = "/gated/mcp"
URLS_ONLY = {"elicitation": {"url": {}}}
HOST = "http://localhost"
MOUNTS = ["wsgi", "view", "lane"]


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = URLS
    yield
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@pytest.fixture
def ada(transactional_db):
    return person("ada")


@pytest.fixture
def token(ada):
    return f"Bearer {token_for(ada)[1]}"


@pytest.fixture(params=MOUNTS)
def mount(request):
    """Each mount that has approval pages."""
    name: str = request.param
    return name


async def granted(user: Any, verdict: str = "grant") -> Approval:
    """Decide on the latest approval, and return it."""
    row: Approval = await Approval.objects.alatest("pk")
    response = await in_thread(decide, user, row, verdict)
    assert response.status_code == 302
    return row


def text_of(answer: Answer) -> str:
    result = answer.response()["result"]
    text: str = result["content"][0]["text"]
    return text


@spec("TOOL-11")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_session_without_pages_is_told_in_band(version, mount, ada, token):
    peer = Peer(mount, PATH, version=version, token=token)
    await peer.open()
    for tool in ("found_group", "found_group_later"):
        body = call(tool, name=tool)
        waiting = await peer.send(body, host="localhost")
        assert waiting.status == 200
        assert waiting.response()["result"]["isError"] is True
        row = await Approval.objects.alatest("pk")
        assert f"{HOST}{page_of(row)}" in text_of(waiting)
        await granted(ada)
        assert text_of(await peer.send(body)) == f"Founded {tool}."
    assert await Group.objects.acount() == 2


def stateless(name: str, *, capabilities: Any = None, **params: Any) -> dict[str, Any]:
    return message(
        "tools/call",
        {"name": name, "arguments": {"name": "crew"}, **params},
        **{envelope.CLIENT_CAPABILITIES: URLS_ONLY if capabilities is None else capabilities},
    )


@pytest.mark.parametrize("tool", ["found_group", "found_group_later"])
async def test_a_stateless_client_goes_to_the_page_and_comes_back(mount, tool, ada, token):
    headers = {"authorization": token, "host": "localhost"}
    first = (await ask(mount, PATH, stateless(tool), **headers)).response()["result"]
    assert first["resultType"] == "input_required"
    assert first["inputRequests"]["approval"]["params"]["mode"] == "url"
    row = await granted(ada)
    assert first["inputRequests"]["approval"]["params"]["url"] == f"{HOST}{page_of(row)}"
    round_ = {
        "requestState": first["requestState"],
        "inputResponses": {"approval": {"action": "accept"}},
    }
    last = await ask(mount, PATH, stateless(tool, **round_), **headers)
    assert text_of(last) == "Founded crew."
    # A round that is sent again finds its approval used.
    again = await ask(mount, PATH, stateless(tool, **round_), **headers)
    assert again.response()["result"]["resultType"] == "input_required"
    assert await Group.objects.acount() == 1


async def test_a_stateless_client_without_pages_is_told_in_band(mount, ada, token):
    body = stateless("found_group", capabilities={})
    waiting = await ask(mount, PATH, body, authorization=token)
    assert text_of(waiting).startswith("Nothing was done yet")
    await granted(ada)
    assert text_of(await ask(mount, PATH, body, authorization=token)) == "Founded crew."


@pytest.mark.parametrize("tool", ["found_group", "found_group_later"])
@pytest.mark.parametrize("streaming", ["view", "lane"])
@pytest.mark.parametrize("verdict", ["grant", "refuse", ""])
async def test_a_session_of_2025_11_25_is_asked_on_its_stream(streaming, tool, verdict, ada, token):
    peer = Peer(streaming, PATH, version=D, token=token)
    peer.headers["host"] = "localhost"
    await peer.open(**URLS_ONLY)
    async with asking(peer, call(tool, name="crew")) as reader:
        question = await reader.message()
        assert question["method"] == "elicitation/create"
        row = await Approval.objects.alatest("pk")
        assert question["params"]["url"] == f"{HOST}{page_of(row)}"
        if verdict:
            await granted(ada, verdict)
        await answer(peer, question, {"action": "accept"})
        (response,) = await reader.rest()
    text = response["result"]["content"][0]["text"]
    if verdict == "grant":
        assert text == "Founded crew."
    elif verdict:
        assert text == f"Nothing was done: this call of {tool} was not approved."
    else:
        assert text.startswith(f"Nothing was done yet: this call of {tool} waits")
    assert await Group.objects.acount() == (verdict == "grant")


async def test_a_client_that_cannot_be_asked_is_told_by_an_error(mount, ada, token):
    """A client of 2025-11-25 with JSON answers alone gets the URL in an error, and calls again."""
    peer = Peer(mount, PATH, version=D, token=token)
    peer.headers |= {"host": "localhost", "accept": "application/json"}
    await peer.open(**URLS_ONLY)
    body = call("found_group", name="crew")
    error = (await peer.send(body)).json()["error"]
    assert error["code"] == URL_ELICITATION_REQUIRED
    row = await Approval.objects.alatest("pk")
    assert error["data"]["elicitations"][0]["url"] == f"{HOST}{page_of(row)}"
    await granted(ada)
    assert text_of(await peer.send(body)) == "Founded crew."


async def test_of_two_requests_at_once_one_runs(ada, token):
    body = stateless("found_group", capabilities={})
    await ask("lane", PATH, body, authorization=token)
    await granted(ada)
    both = await asyncio.gather(*(ask("lane", PATH, body, authorization=token) for _ in range(2)))
    texts = sorted(map(text_of, both))
    assert texts[0] == "Founded crew."
    assert texts[1].startswith("Nothing was done yet")
    assert await Group.objects.acount() == 1


async def test_another_user_is_not_helped_by_a_yes(mount, ada, token):
    body = stateless("found_group", capabilities={})
    await ask(mount, PATH, body, authorization=token)
    await granted(ada)
    grace = await sync_to_async(person)("grace")
    other = f"Bearer {(await sync_to_async(token_for)(grace))[1]}"
    assert text_of(await ask(mount, PATH, body, authorization=other)).startswith("Nothing was")
    # The `requestState` of another user is invalid.
    first = await ask(mount, PATH, stateless("ask_first"), authorization=token, host="localhost")
    state = first.response()["result"]["requestState"]
    stolen = stateless(
        "ask_first", requestState=state, inputResponses={"approval": {"action": "accept"}}
    )
    assert "error" in (await ask(mount, PATH, stolen, authorization=other)).json()
    assert await Group.objects.acount() == 0


async def test_nobody_is_told_to_sign_in(mount, transactional_db):
    refused = await ask(mount, PATH, stateless("found_group"))
    assert refused.status == 401
    assert not await Approval.objects.aexists()
