"""Streamable HTTP of the handshake revisions: statuses of errors, and clients that disconnect."""

import pytest

from tests.spec import spec
from tests.transports.http_session.handshakes import (
    STAGE,
    VERSIONS,
    B,
    C,
    D,
    call,
    code_of,
    opened,
    request,
)
from tests.transports.stage import gates, reached


@spec("HTTP-21", "RPC-10", "ERR-3", "TOOL-6")
async def test_an_error_of_a_method_never_looks_like_a_dead_session(mount):
    wrong = [
        (request("tools/dance", id="a"), -32601),
        (request("server/discover", id=0), -32601),
        (request("subscriptions/listen", {"notifications": {}}, id=2), -32601),
        (request("completion/complete", {}, id=3), -32601),
        (request("tools/call", {"name": "nothing"}, id=4), -32602),
        (request("tools/call", {}, id=5), -32602),
        (request("tools/list", {"cursor": "nonsense"}, id=6), -32602),
        (request("resources/read", {"uri": "stage://nothing"}, id=7), -32002),
    ]
    for version in VERSIONS:
        peer = await opened(mount, STAGE, version=version)
        for body, code in wrong:
            answer = await peer.send(body)
            assert (answer.status, code_of(answer)) == (200, code)
            assert answer.json()["id"] == body["id"]
        assert await peer.result("ping") == {}


@spec("HTTP-12", "HTTP-8")
@pytest.mark.usefixtures("_stage", "transactional_db")
async def test_where_there_are_no_streams_a_get_says_so():
    for version in VERSIONS:
        peer = await opened("wsgi", version=version)
        answer = await peer.get()
        assert answer.status == 405
        assert {*answer.headers["allow"].split(", ")} == {"POST", "DELETE", "OPTIONS"}
        assert (await peer.delete()).status == 204


@spec("HTTP-8", "HTTP-12")
async def test_a_get_that_takes_no_stream_is_refused(streaming):
    for version in (B, C, D):
        peer = await opened(streaming, version=version)
        for accept in ("application/json", "text/plain", "text/event-stream;q=0"):
            assert (await peer.get(accept=accept)).status == 406


@spec("HTTP-16")
async def test_a_client_that_hangs_up_has_canceled_nothing(streaming, gate):
    for version in (B, C, D):
        peer = await opened(streaming, STAGE, version=version)
        for tool, progress in (("walk_and_stay", 1), ("stay_later", None)):
            if streaming == "view" and progress is None:
                # Django's own handler keeps such a request until its view has returned.
                continue
            name = f"{gate}-{version}-{tool}"
            async with peer.stream(call(tool, gate=name, progress=progress)):
                await reached(gates[name].entered)
            assert not gates[name].left.is_set()
            gates[name].opened.set()
            await reached(gates[name].left)
            assert gates.pop(name).outcome == "opened"
