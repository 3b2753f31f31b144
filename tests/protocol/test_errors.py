"""Error objects and HTTP statuses, revision by revision."""

import pytest

from mcp_django.protocol import errors
from mcp_django.protocol.errors import (
    Busy,
    HeaderMismatch,
    InternalError,
    InvalidEnvelope,
    InvalidParams,
    InvalidRequest,
    MCPDjangoError,
    MethodNotFound,
    MissingCapability,
    ParseError,
    RateLimited,
    RequestCancelled,
    ResourceNotFound,
    UnsupportedProtocolVersion,
)
from mcp_django.protocol.revisions import (
    DRAFT_2026_V1,
    HANDSHAKE,
    REVISIONS,
    STATELESS,
    V2026_07_28,
    error_object,
    http_status,
)
from tests.spec import spec

EVERY_ERROR = (
    ParseError,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    InvalidEnvelope,
    ResourceNotFound,
    HeaderMismatch,
    MissingCapability,
    UnsupportedProtocolVersion,
    RequestCancelled,
    RateLimited,
    Busy,
    InternalError,
)


def test_an_error_keeps_its_message_and_data():
    exc = InvalidParams("No such tool", data={"tool": "x"})
    assert isinstance(exc, MCPDjangoError)
    assert (exc.message, exc.data, str(exc)) == ("No such tool", {"tool": "x"}, "No such tool")


@spec("RPC-5", "RPC-13")
def test_an_error_object_has_code_and_message_and_data_only_if_there_is_some():
    assert error_object(InternalError("Failed"), V2026_07_28) == {
        "code": -32603,
        "message": "Failed",
    }
    assert error_object(InvalidParams("No", data={}), None) == {
        "code": -32602,
        "message": "No",
        "data": {},
    }


@spec("RSC-4", "ERR-1")
@pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda r: r.version)
def test_a_missing_resource_has_its_own_code_before_the_stateless_revisions_only(revision):
    exc = ResourceNotFound("No resource", data={"uri": "shop://x"})
    code = -32602 if revision.stateless else -32002
    assert error_object(exc, revision) == {
        "code": code,
        "message": "No resource",
        "data": {"uri": "shop://x"},
    }


@spec("HTTP-19", "VER-18")
@pytest.mark.parametrize("revision", HANDSHAKE, ids=lambda r: r.version)
@pytest.mark.parametrize("error", [UnsupportedProtocolVersion, MissingCapability])
def test_handshake_revisions_write_the_newer_errors_in_a_code_of_theirs(error, revision):
    assert error_object(error("x"), revision)["code"] == -32602


@spec("ALS-2")
@pytest.mark.parametrize(
    ("exc", "dated", "draft"),
    [
        (HeaderMismatch("x"), -32020, -32001),
        (MissingCapability("x"), -32021, -32003),
        (UnsupportedProtocolVersion("x"), -32022, -32004),
        (MethodNotFound("x"), -32601, -32601),
    ],
)
def test_the_draft_has_other_codes_for_three_errors(exc, dated, draft):
    assert error_object(exc, V2026_07_28)["code"] == dated
    assert error_object(exc, DRAFT_2026_V1)["code"] == draft


@spec("ERR-1")
@pytest.mark.parametrize("error", EVERY_ERROR)
def test_the_stateless_revision_uses_only_codes_it_defines(error):
    code = error_object(error("x"), V2026_07_28)["code"]
    assert code not in (errors.RESOURCE_NOT_FOUND, errors.URL_ELICITATION_REQUIRED)
    if -32099 <= code <= -32020:
        assert code in (-32020, -32021, -32022)


@spec("ERR-2")
@pytest.mark.parametrize("code", [errors.RATE_LIMITED, errors.BUSY, errors.REQUEST_CANCELLED])
def test_our_own_codes_lie_outside_the_reserved_ranges(code):
    assert not -32768 <= code <= -32000


@spec("HTTP-24", "HTTP-25", "HTTP-31")
@pytest.mark.parametrize("revision", [*STATELESS, None], ids=str)
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ParseError, 400),
        (InvalidRequest, 400),
        (MethodNotFound, 404),
        (InvalidParams, 200),
        (InvalidEnvelope, 400),
        (ResourceNotFound, 200),
        (HeaderMismatch, 400),
        (MissingCapability, 400),
        (UnsupportedProtocolVersion, 400),
        (RateLimited, 429),
        (Busy, 503),
        (InternalError, 200),
    ],
)
def test_a_stateless_error_has_the_status_of_its_kind(error, status, revision):
    assert http_status(error("x"), revision) == status


@spec("HTTP-21", "RPC-9")
@pytest.mark.parametrize("revision", HANDSHAKE, ids=lambda r: r.version)
@pytest.mark.parametrize("error", EVERY_ERROR)
def test_a_handshake_error_from_dispatch_rides_on_200(error, revision):
    kept = {
        ParseError: 400,
        InvalidRequest: 400,
        UnsupportedProtocolVersion: 400,
        RateLimited: 429,
        Busy: 503,
    }
    status = http_status(error("x"), revision)
    assert status == kept.get(error, 200)
    assert status != 404
