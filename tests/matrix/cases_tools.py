"""Calls of tools: their results, their failures, and the messages that they send meanwhile."""

from __future__ import annotations

from typing import Any

from tests.matrix.cases import ASKABLE, HTTP, NEW, OLD, WITH_STAFF, Case, call

LOUD: dict[str, Any] = {"is_loud": True}
ASKED: dict[str, Any] = {"capabilities": ASKABLE}
STAFF: dict[str, Any] = {"callers": WITH_STAFF}


def _arguments(name: str, arguments: Any) -> Case:
    return Case(method="tools/call", params={"name": name, "arguments": arguments})


def _params(params: Any) -> Case:
    return Case(method="tools/call", params=params)


CALLS = {
    "add": call("add", a=2, b=3, case=STAFF),
    "add, in a thread": call("add_sync", a=2, b=3),
    "structured output": call("total", parts=[1, 2]),
    "no output": call("nothing"),
    "no output, in a thread": call("nothing_sync"),
    "several blocks": call("blocks"),
    "alias": call("former_name"),
    "name of an alias": call("present_name"),
    "absent tool": call("absent", a=1, case=STAFF),
    "hidden tool": call("hidden", case=STAFF),
    "hidden tool on the loop": call("hidden_later", case=STAFF),
    "tool with a scope": call("scoped", case=STAFF),
    "missing argument": call("add"),
    "invalid argument": call("bounded", n=10),
    "argument of a wrong type": call("add", a="two"),
    "unknown argument": call("add", a=1, c=2),
    "several invalid arguments, in a thread": call("add_sync", b="x", c=1),
    "arguments are a list": _arguments("add", [1]),
    "arguments are null": _arguments("nothing", None),
    "arguments are a text": _arguments("nothing", "a"),
    "no arguments": _params({"name": "nothing"}),
    "no name": _params({"arguments": {}}),
    "name is a number": _params({"name": 5}),
    "empty name": _params({"name": "", "arguments": {}}),
    "logged arguments": call("logged", name="Ada", code="1234", password="secret"),
    "logged arguments on the loop": call("logged_later", name="Ada"),
    "invalid logged arguments": call("logged", name=1, code="1234"),
    "surrogate": call("surrogate"),
    "surrogate on the loop": call("surrogate_later"),
    "surrogate in an argument": Case(
        raw=b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bounded",'
        b'"arguments":{"n":1,"color":"\\ud800"}}}',
        revisions=OLD,
    ),
    "not a number": call("not_a_number"),
    "result of a wrong type": call("wrong_type"),
    "large result": call("large", size=400),
    "too large result": call("large", size=1100),
    "caller": call("who"),
    "resource within a call": call("reads", uri="matrix://text"),
    "absent resource within a call": call("reads", uri="matrix://absent"),
    "hidden resource within a call": call("reads", uri="matrix://hidden", case=STAFF),
    "write": call("write", name="crew"),
    "write on the loop": call("write_later", name="crew"),
    "write in a transaction and fail": call("write_and_fail", name="crew"),
    "count": call("count", case=STAFF),
    "count on the loop": call("count_later"),
    "too many statements": call("count_often"),
    "too many statements on the loop": call("count_often_later"),
    "write refused": call("write_refused"),
    "write refused on the loop": call("write_refused_later"),
    "slow": call("slow"),
    "slow, with progress": call("slow", case=LOUD),
    "late": call("late"),
    **{
        f"fail: {kind}": call("fail", kind=kind)
        for kind in ("tool", "bug", "denied", "invalid", "missing", "absent row", "protocol")
    },
    **{
        f"fail on the loop: {kind}": call("fail_later", kind=kind)
        for kind in ("tool", "bug", "denied", "invalid", "missing", "absent row", "protocol")
    },
}

HEADER_PARAMETERS = {
    "header parameter": call("routed", region="eu", case={"headers": {"mcp-param-region": "eu"}}),
    "header parameter missing": call("routed", region="eu"),
    "header parameter differs": call(
        "routed", region="eu", case={"headers": {"mcp-param-region": "us"}}
    ),
    "header parameter without argument": call(
        "routed", case={"headers": {"mcp-param-region": "eu"}}
    ),
}


def _second_round(first: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a call whose questions are answered."""
    result = first.get("result", {})
    answers = {
        key: {"action": "accept", "content": {"name": "Ada"}}
        for key in result.get("inputRequests", {})
    }
    given = {"inputResponses": answers, "requestState": result.get("requestState", "")}
    return {"name": "ask", "arguments": {}, **given}


def _declined(first: dict[str, Any]) -> dict[str, Any]:
    params = _second_round(first)
    return {
        **params,
        "inputResponses": {key: {"action": "decline"} for key in params["inputResponses"]},
    }


def _on_loop(first: dict[str, Any]) -> dict[str, Any]:
    return {**_second_round(first), "name": "ask_later"}


def _forged(first: dict[str, Any]) -> dict[str, Any]:
    return {**_second_round(first), "requestState": "forged"}


def _of_another_tool(first: dict[str, Any]) -> dict[str, Any]:
    return {**_second_round(first), "name": "ask_before"}


def _answered(params: Any, tool: str = "ask") -> Case:
    # In memory the client answers by itself.
    return Case(
        method="tools/call",
        params=params,
        first=call(tool, case=ASKED),
        mounts=(*HTTP, "stdio"),
        revisions=NEW,
        capabilities=ASKABLE,
    )


NAMED: dict[str, Any] = {"capabilities": ASKABLE, "answers": ({"name": "Ada"},)}

TALKS = {
    "silent context": call("walk"),
    "silent context on the loop": call("walk_later"),
    "silent context, with progress": call("walk", case=LOUD),
    "progress": call("walk", steps=2, case=LOUD),
    "progress on the loop": call("walk_later", steps=2, case=LOUD),
    "progress nobody wants": call("walk", steps=2),
    "progress and failure": call("walk_and_fail", case=LOUD),
    "progress, only documents accepted": call(
        "walk", steps=2, case={**LOUD, "headers": {"accept": "application/json"}}
    ),
    "progress, only streams accepted": call(
        "walk", steps=2, case={**LOUD, "headers": {"accept": "text/event-stream"}}
    ),
    "question, first round": call("ask", case={**ASKED, "revisions": NEW}),
    "question, first round on the loop": call("ask_later", case={**ASKED, "revisions": NEW}),
    "question, second round": _answered(_second_round),
    "question, second round on the loop": _answered(_on_loop, "ask_later"),
    "question, declined": _answered(_declined),
    "question, forged state": _answered(_forged),
    "question, state of another tool": _answered(_of_another_tool),
    "question answered on the stream": call("ask", case={**NAMED, "revisions": OLD}),
    "question answered on the stream, on the loop": call(
        "ask_later", case={**NAMED, "revisions": OLD}
    ),
    "question answered in memory": call(
        "ask", case={**NAMED, "revisions": NEW, "mounts": ("memory",)}
    ),
    "question to a client that cannot be asked": call("ask"),
    "missing capability": call("needs_sampling"),
    "capability declared": call("needs_sampling", case=ASKED),
}


def _again(first: Case, **options: Any) -> Case:
    """Return the same call, sent a second time."""
    return Case(method="tools/call", params=first.params, first=first, **options)


AS_RESULT = {"settings": {"THROTTLE_AS": "result"}}
LIMITED = {
    "rated": call("rated"),
    "rated, again": _again(call("rated")),
    "rated on the loop, again": _again(call("rated_later")),
    "rated, again, as a result": _again(call("rated"), **AS_RESULT),
    "rated on the loop, again, as a result": _again(call("rated_later"), **AS_RESULT),
    "rated server": call("look", case={"server": "rated"}),
    "rated server, again": _again(call("look", case={"server": "rated"}), server="rated"),
    "approval": call("approved", name="a"),
    "approval, again": _again(call("approved", name="a")),
    "approval by page": call("approved", name="a", case=ASKED | {"revisions": NEW}),
    "approval of staff": call("approved_later", name="a"),
}
