"""Cancellation of calls and subscriptions over stdio."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.protocol import envelope
from tests.kit.drivers import message
from tests.spec import spec
from tests.transports.stdio_process import StdioProcess, stdio

pytestmark = pytest.mark.outside

TOOLS = {"toolsListChanged": True}
PROMPTS = {"promptsListChanged": True}
SOUND = "noisy://sound"


@pytest.fixture(scope="module")
def on_stage(tmp_path_factory):
    with stdio(tmp_path_factory.mktemp("stage"), "--server", "stage") as process:
        yield process


@pytest.fixture
def stage(on_stage):
    """A process whose tools wait at gates; the test must read everything that it writes."""
    yield on_stage
    assert on_stage.request("server/discover")["result"]["resultType"] == "complete"


@pytest.fixture(scope="module")
def in_noise(tmp_path_factory):
    # Notifications of lists come immediately, and those of earlier changes do not come again.
    environ = {"MCP_TEST_CONFIRM_SECONDS": "0"}
    with stdio(tmp_path_factory.mktemp("noisy"), "--server", "noisy", **environ) as process:
        yield process


@pytest.fixture
def noisy(in_noise):
    """A process that publishes changes; the test must read everything that it writes."""
    yield in_noise
    assert in_noise.request("server/discover")["result"]["resultType"] == "complete"


@pytest.fixture
def gate(request):
    name: str = request.node.name
    return name


def wait_at(process: StdioProcess, gate: str) -> None:
    while process.call("knock", name=gate) != "true":
        pass


# Calls --------------------------------------------------------------------------------------------


@spec("CAN-1", "CAN-9", "IO-5")
@pytest.mark.parametrize("tool", ["stay", "stay_later"])
def test_a_canceled_call_stops_and_is_not_answered(stage, gate, tool):
    call = stage.begin_call(tool, gate=gate)
    wait_at(stage, gate)
    stage.cancel(call, reason="enough")
    # The tool itself reports how it ended; the next response is that of the next request.
    assert stage.call("outcome", name=gate) == "cancelled"
    assert stage.call("open_gate", name=gate) == gate


@spec("CAN-1", "IO-5", "PRG-2")
@pytest.mark.parametrize("tool", ["walk", "walk_later"])
def test_a_canceled_call_says_nothing_more(stage, gate, tool):
    extra = {envelope.PROGRESS_TOKEN: 1, envelope.LOG_LEVEL: "debug"}
    call = stage.begin("tools/call", {"name": tool, "arguments": {"gate": gate}}, **extra)
    assert [stage.next()["method"] for _ in range(2)] == [
        "notifications/progress",
        "notifications/message",
    ]
    stage.cancel(call)
    stage.request("server/discover")
    # Messages of the tool from behind the gate come too late.
    assert stage.call("open_gate", name=gate) == gate
    for _ in range(20):
        stage.request("tools/list")


@spec("CAN-1", "IO-5")
def test_a_call_is_canceled_before_it_has_begun(stage, gate):
    call = message("tools/call", {"name": "stay", "arguments": {"gate": gate}}, id="early")
    cancellation = {"method": "notifications/cancelled", "params": {"requestId": "early"}}
    stage.send(call, {"jsonrpc": "2.0", **cancellation})
    assert stage.call("open_gate", name=gate) == gate


@spec("CAN-1", "RPC-4")
def test_the_id_of_a_canceled_call_is_free(stage, gate):
    call = message("tools/call", {"name": "stay_later", "arguments": {"gate": gate}}, id="again")
    stage.send(call)
    wait_at(stage, gate)
    stage.cancel("again")
    stage.send(message("server/discover", id="again"))
    answered = stage.response()
    assert answered["id"] == "again"
    assert "supportedVersions" in answered["result"]


@spec("CAN-1", "RPC-2")
def test_an_id_is_canceled_with_its_type(stage, gate):
    call = {"name": "stay_later", "arguments": {"gate": gate}}
    stage.send(message("tools/call", call, id=70_001), message("tools/call", call, id="70001"))
    wait_at(stage, gate)
    stage.cancel("70001")
    opening = stage.begin_call("open_gate", name=gate)
    assert {stage.response()["id"], stage.response()["id"]} == {70_001, opening}


@spec("CAN-2")
@pytest.mark.parametrize(
    "params",
    [
        {"requestId": "unknown"},
        {"requestId": 99_999},
        {"requestId": 1.5},
        {"requestId": None},
        {"requestId": True},
        {"requestId": ["open"]},
        {"requestId": {}},
        {"reason": "no id at all"},
        {"requestId": "OPEN"},
        {},
        [],
        None,
        "open",
    ],
)
def test_a_cancellation_of_nothing_is_ignored(stage, gate, params):
    stage.send(message("tools/call", {"name": "stay", "arguments": {"gate": gate}}, id="open"))
    wait_at(stage, gate)
    stage.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    opening = stage.begin_call("open_gate", name=gate)
    assert {stage.response()["id"], stage.response()["id"]} == {"open", opening}


@spec("CAN-2")
def test_a_late_or_repeated_cancellation_is_ignored(stage, gate):
    done = stage.request("server/discover")["id"]
    stage.cancel(done)
    call = stage.begin_call("stay", gate=gate)
    wait_at(stage, gate)
    for _ in range(3):
        stage.cancel(call)
    assert stage.call("outcome", name=gate) == "cancelled"


@spec("CAN-2", "VER-2")
def test_a_cancellation_may_carry_an_envelope(stage, gate):
    call = stage.begin_call("stay", gate=gate)
    wait_at(stage, gate)
    stage.cancel(call, _meta=message("x")["params"]["_meta"])
    assert stage.call("outcome", name=gate) == "cancelled"


@spec("CAN-2", "RPC-8")
def test_a_cancellation_with_an_id_is_a_request_of_no_method(stage):
    refused = stage.request("notifications/cancelled", {"requestId": 1})
    assert refused["error"]["code"] == -32601


# Subscriptions ------------------------------------------------------------------------------------


def listen(process: StdioProcess, wanted: dict[str, Any], *, id: Any, **extra: Any) -> None:
    params = {"notifications": wanted}
    process.send(message("subscriptions/listen", params, id=id, **extra))


def acknowledgement(wanted: dict[str, Any], *, id: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": wanted, "_meta": {envelope.SUBSCRIPTION_ID: id}},
    }


def notice(kind: str, *, id: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": f"notifications/{kind}/list_changed",
        "params": {"_meta": {envelope.SUBSCRIPTION_ID: id}},
    }


def change(process: StdioProcess, kind: str) -> list[dict[str, Any]]:
    """Publish a change by a call, whose response has to come next."""
    call = process.begin_call("change", kind=kind)
    assert process.response()["id"] == call
    return []


@spec("IO-7", "SUB-8", "SUB-9", "SUB-11", "SUB-14")
def test_subscriptions_share_the_channel(noisy):
    listen(noisy, TOOLS, id=501)
    assert noisy.next() == acknowledgement(TOOLS, id=501)
    listen(noisy, {**TOOLS, **PROMPTS}, id="501")
    assert noisy.next() == acknowledgement({**PROMPTS, **TOOLS}, id="501")
    change(noisy, "tools")
    heard = [noisy.next(), noisy.next()]
    assert notice("tools", id=501) in heard
    assert notice("tools", id="501") in heard
    change(noisy, "prompts")
    assert noisy.next() == notice("prompts", id="501")
    noisy.cancel("501")
    change(noisy, "prompts")
    change(noisy, "tools")
    assert noisy.next() == notice("tools", id=501)
    noisy.cancel(501)
    change(noisy, "tools")
    # A new subscription gets no notification of an earlier change.
    listen(noisy, TOOLS, id=501)
    assert noisy.next() == acknowledgement(TOOLS, id=501)
    noisy.cancel(501)


@spec("IO-7", "SUB-8", "SUB-10")
def test_calls_and_subscriptions_do_not_mix(noisy):
    listen(noisy, TOOLS, id="quiet")
    assert noisy.next() == acknowledgement(TOOLS, id="quiet")
    assert noisy.call("repeat", text="x") == "x"
    change(noisy, "prompts")
    change(noisy, "resources")
    change(noisy, "tools")
    assert noisy.next() == notice("tools", id="quiet")
    noisy.cancel("quiet")


@spec("SUB-7", "SUB-8")
def test_only_what_is_honored_is_acknowledged(noisy):
    listen(noisy, {"resourceSubscriptions": [SOUND, "noisy://nothing", "bad uri"]}, id=1000)
    honored = {"resourceSubscriptions": [SOUND]}
    assert noisy.next() == acknowledgement(honored, id=1000)
    noisy.cancel(1000)


@spec("SUB-15")
def test_a_client_may_hold_only_so_many_subscriptions(tmp_path):
    with stdio(tmp_path, "--server", "noisy", MCP_TEST_STREAMS="2") as process:
        for id in ("a", "b"):
            listen(process, {}, id=id)
            assert process.next() == acknowledgement({}, id=id)
        listen(process, {}, id="c")
        refused = process.response()
        assert (refused["id"], refused["error"]["code"]) == ("c", -31429)
        process.cancel("a")
        listen(process, {}, id="d")
        assert process.next() == acknowledgement({}, id="d")


@spec("SUB-12", "SUB-13", "SUB-9", "IO-6")
@pytest.mark.parametrize("given", [7, "7"])
def test_a_stopping_server_takes_leave_of_each_subscription(tmp_path, given):
    with stdio(tmp_path, "--server", "noisy") as process:
        listen(process, TOOLS, id=given)
        assert process.next() == acknowledgement(TOOLS, id=given)
        process.process.terminate()
        response, cancellation = process.rest()
        assert process.wait() == 0
    assert response["id"] == given
    assert response["result"]["resultType"] == "complete"
    assert response["result"]["_meta"][envelope.SUBSCRIPTION_ID] == given
    assert cancellation == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": given, "_meta": {envelope.SUBSCRIPTION_ID: given}},
    }


@spec("ALS-2", "SUB-9", "SUB-13")
def test_the_draft_writes_subscription_ids_as_strings(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        listen(process, TOOLS, id=7, **{envelope.PROTOCOL_VERSION: "DRAFT-2026-v1"})
        assert process.next() == acknowledgement(TOOLS, id="7")
        process.process.terminate()
        response, cancellation = process.rest()
    assert response["id"] == 7
    assert response["result"]["_meta"][envelope.SUBSCRIPTION_ID] == "7"
    assert cancellation["params"]["requestId"] == 7
