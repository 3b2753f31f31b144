"""`requestState` belongs to one caller, server, component and set of arguments (MRT-5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from mcp_django.test import ErrorResponse, MCPClient
from tests.components.questions.site import (
    accept,
    asking,
    begun,
    call,
    error_of,
    post,
    result_of,
    retry,
)
from tests.spec import spec

SERVER = asking()
BAD = -32602


@spec("MRT-5")
@pytest.mark.parametrize(
    "changes",
    [
        {"name": "refund"},
        {"arguments": {"amount": 2}},
        {"arguments": {"amount": 1}},
        {"arguments": {"note": {}}},
        {"arguments": {"note": None}},
    ],
)
def test_a_state_is_good_for_its_tool_and_arguments_alone(changes):
    error = error_of(SERVER, retry(begun(SERVER), **changes))
    assert error["code"] == BAD
    assert "belongs to another request" in error["message"]


@spec("MRT-5")
def test_a_state_is_good_for_its_method_alone():
    body = call("prompts/get", name="pay", requestState=begun(SERVER))
    assert error_of(SERVER, body)["code"] == BAD
    read = result_of(SERVER, call("resources/read", uri="x://a"))["requestState"]
    body = call("resources/read", uri="x://b", requestState=read)
    assert error_of(SERVER, body)["code"] == BAD


@spec("MRT-5")
def test_a_state_is_good_for_its_server_alone():
    assert error_of(asking("other"), retry(begun(SERVER)))["code"] == BAD
    assert result_of(asking("asking"), retry(begun(SERVER)))["resultType"] == "input_required"


@spec("MRT-5")
@pytest.mark.parametrize(
    "text",
    [
        '{"note": {"b": [{"x": 1, "y": 2}], "a": "é"}, "amount": 2}',
        '{ "amount" : 2 ,\n"note": {"a":"\\u00e9","b":[ {"y":2, "x":1} ]} }',
    ],
)
def test_the_order_of_members_and_white_space_mean_nothing(text):
    arguments = {"amount": 2, "note": {"a": "é", "b": [{"y": 2, "x": 1}]}}
    body = retry(begun(SERVER, arguments=arguments), arguments="HERE")
    answer = post(SERVER, body, text=json.dumps(body).replace('"HERE"', text))
    assert list(answer.json()["result"]["inputRequests"]) == ["why"]


@spec("MRT-5")
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("0.1234567890123456789", "0.1234567890123456788"),
        ("12345678901234567890123", "12345678901234567890124"),
        ("1", '"1"'),
        ("1", "true"),
        ("0", "null"),
        ("[]", "{}"),
    ],
)
def test_arguments_are_compared_digit_by_digit(first, then):
    def send(state: str | None, value: str) -> dict[str, Any]:
        body = retry(state, arguments={"note": {"x": "HERE"}})
        response: dict[str, Any] = post(
            SERVER, body, text=json.dumps(body).replace('"HERE"', value)
        ).json()
        return response

    state = send(None, first)["result"]["requestState"]
    assert "result" in send(state, first)
    assert send(state, then)["error"]["code"] == BAD


@spec("MRT-4", "MRT-5")
@pytest.mark.parametrize("number", ["1e400", "-1E+999", "1" * 400, "0." + "1" * 400, "1e-400"])
def test_a_number_that_no_float_holds_is_no_trouble(number):
    for state, code in ((None, None), ("nonsense", BAD)):
        body = retry(state, arguments={"note": {"x": "HERE"}})
        answer = post(SERVER, body, text=json.dumps(body).replace('"HERE"', number))
        assert answer.status == 200
        assert answer.json().get("error", {}).get("code") == code
        assert "logged" not in answer.body.decode()


@spec("MRT-5", "ASK-19")
def test_a_state_is_good_for_its_user_alone():
    ada, bob = User(pk=1, username="ada"), User(pk=2, username="bob")
    result = MCPClient(server=SERVER, user=ada).request("tools/call", {"name": "pay"})
    params = {
        "name": "pay",
        "inputResponses": {"sure": accept(value=True)},
        "requestState": result["requestState"],
    }
    for user in (bob, None):
        with pytest.raises(ErrorResponse, match="belongs to another request") as caught:
            MCPClient(server=SERVER, user=user).request("tools/call", params)
        assert caught.value.code == BAD
    again = MCPClient(server=SERVER, user=ada).request("tools/call", params)
    assert list(again["inputRequests"]) == ["why"]
