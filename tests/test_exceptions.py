"""Codes and statuses of the exceptions, none of them in a reserved range without being defined."""

import inspect

import pytest

from mcp_django import exceptions
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    Busy,
    ConnectionRefused,
    InsufficientScope,
    MCPError,
    TooManyStreams,
)
from mcp_django.protocol.revisions import LATEST, error_object, http_status
from tests.spec import spec

WIRE = [
    value
    for value in vars(exceptions).values()
    if inspect.isclass(value) and issubclass(value, MCPError)
]


@spec("ERR-1", "ERR-2")
@pytest.mark.parametrize("kind", WIRE)
def test_a_code_is_a_defined_one_or_outside_the_reserved_ranges(kind):
    error = error_object(kind("x"), LATEST)
    json_rpc = {-32700, -32600, -32601, -32602, -32603}
    defined = {-32020, -32021, -32022}
    assert error["code"] in json_rpc | defined or not -32768 <= error["code"] <= -32000
    assert error == {"code": error["code"], "message": "x"}


@spec("RPC-5", "RPC-13")
def test_data_is_sent_when_there_is_some():
    assert error_object(MCPError("x", data={"a": 1}), LATEST)["data"] == {"a": 1}
    assert "data" not in error_object(MCPError("x"), LATEST)


def test_the_statuses_of_refusals():
    assert http_status(Busy("x"), LATEST) == 503
    assert http_status(TooManyStreams("x"), LATEST) == 429
    assert (AuthenticationRequired("x").status, AuthenticationRequired("x").error) == (401, "")
    assert InsufficientScope("x").status == ConnectionRefused("x").status == 403
    for kind in (AuthenticationRequired, InsufficientScope, ConnectionRefused):
        refusal = kind("why", scopes=(scope for scope in ("a", "b")))
        assert isinstance(refusal, AccessRefused)
        assert (str(refusal), refusal.message, refusal.scopes) == ("why", "why", ("a", "b"))
