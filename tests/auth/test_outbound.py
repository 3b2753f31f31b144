"""Requests to other servers, and which of their responses are accepted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("jwt")

from mcp_django.auth import outbound
from mcp_django.auth.outbound import FetchFailed, fetch_json
from tests.auth.issuers import issuer


@pytest.fixture
def server(settings):
    settings.DEBUG = True
    with issuer() as provider:
        yield provider


def test_a_document_is_asked_for_by_a_name_of_its_own(server):
    seen: dict[str, str] = {}

    def answer(body: bytes, headers: Any) -> tuple[int, dict[str, str], bytes]:
        seen.update(headers)
        return 200, {}, b'{"a": 1}'

    server.answers["/"] = answer
    assert fetch_json(f"{server.url}/") == {"a": 1}
    assert seen["User-Agent"] == "django-mcp-provider"
    assert "Authorization" not in seen


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example/keys",
        "http://169.254.169.254/keys",
        "file:///etc/passwd",
        "ftp://127.0.0.1/keys",
        "data:application/json,{}",
        "https://",
        "",
    ],
)
def test_nothing_but_https_and_loopback_is_asked(url, server):
    with pytest.raises(FetchFailed, match="is not allowed"):
        fetch_json(url)


def test_loopback_is_asked_in_development_alone(server, settings):
    settings.DEBUG = False
    with pytest.raises(FetchFailed, match="is not allowed"):
        fetch_json(f"{server.url}/keys")
    assert not server.asked


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("body", [None, b"token=t"])
def test_a_redirect_is_not_followed(status, body, server):
    server.answers["/old"] = lambda *_: (status, {"Location": f"{server.url}/keys"}, b"")
    with pytest.raises(FetchFailed, match=f"responded with {status}"):
        fetch_json(f"{server.url}/old", body=body)
    assert server.asked["/keys"] == 0


def test_an_answer_that_does_not_end_in_time_is_given_up(server, monkeypatch):
    moments = iter([0.0, outbound.TIMEOUT_SECONDS + 1])
    monkeypatch.setattr(outbound, "time", Moments(moments))
    with pytest.raises(FetchFailed, match="takes longer than"):
        fetch_json(f"{server.url}/keys")


class Moments:
    """The module ``time`` with a clock of its own."""

    def __init__(self, moments: Iterator[float]) -> None:
        self._moments = moments

    def monotonic(self) -> float:
        return next(self._moments)

    time = staticmethod(time.time)


@pytest.mark.parametrize("content", [b"", b"[1]", b'"x"', b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(content, server):
    server.answers["/"] = lambda *_: (200, {}, content)
    with pytest.raises(FetchFailed, match=r"is not (valid JSON|a JSON object)"):
        fetch_json(f"{server.url}/")


def test_a_server_that_is_not_there_is_named(settings):
    settings.DEBUG = True
    with pytest.raises(FetchFailed, match=r"127\.0\.0\.1:1/ cannot be fetched"):
        fetch_json("http://127.0.0.1:1/")
