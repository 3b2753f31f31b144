"""The server log contains no secret, whatever a tool raises or a message contains."""

from __future__ import annotations

import logging

import pytest

from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal
from tests.kit.servers import open_to_all, real_client

KEPT = "sk-1234567890abcdef"
SECRETS = (
    f"Authorization: Bearer {KEPT}",
    "mcp_" + "Z" * 43,
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl",
    f"GET https://api.example/v1?page=2&access_token={KEPT}: 403",
    f"https://ada:{KEPT}@api.example/",
    f"https://api.example/?X-Amz-Signature={KEPT}",
)


@pytest.fixture
def text(caplog):
    """A function that returns the log as a handler writes it."""
    caplog.set_level(logging.DEBUG)
    return lambda: caplog.text


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("is_cause", [False, True])
def test_the_exception_of_a_tool_is_logged_without_its_secrets(secret, is_cause, text, caplog):
    server = open_to_all()

    def ask() -> str:
        raise LookupError(f"upstream said no to {secret}")

    @server.tool
    def call_upstream() -> str:
        try:
            return ask()
        except LookupError as exc:
            if is_cause:
                raise RuntimeError("It did not work.") from exc
            raise

    result = real_client(server=server).call_tool("call_upstream", check=False)
    assert result.is_error
    assert "upstream said no to" in text()
    assert "call_upstream" in text()
    assert "[hidden]" in text()
    for part in (KEPT, "Z" * 43, "eyJzdWIiOiJhZGEifQ"):
        assert part not in text()
    # A handler that formats the exception itself has none to format.
    assert not [record for record in caplog.records if record.exc_info]


def test_an_exception_without_a_secret_is_logged_as_it_is(caplog):
    server = open_to_all()

    @server.tool
    def stumble() -> str:
        raise RuntimeError("No bearing, basically.")

    real_client(server=server).call_tool("stumble", check=False)
    (record,) = (logged for logged in caplog.records if logged.exc_info)
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)


@pytest.mark.parametrize("name", ["mcp_django", "mcp_django.calls", "mcp_django.security"])
def test_a_message_is_logged_without_its_secrets(name, text):
    logger = logging.getLogger(name)
    logger.warning("100 %% of %s", SECRETS[0])
    logger.warning("100 % is no place")
    assert "100 % of Authorization: [hidden]" in text()
    assert "100 % is no place" in text()
    assert KEPT not in text()


def test_an_object_that_cannot_say_what_it_is_breaks_no_request(monkeypatch):
    class Mute(BasePermission):
        def has_permission(self, principal: Principal) -> bool:
            raise LookupError("no such list")

        def __str__(self) -> str:
            raise RuntimeError("mute")

    server = open_to_all()

    @server.tool(permission=Mute())
    def hidden() -> str:
        return "done"

    @server.tool
    def shown() -> str:
        return "done"

    # pytest's handlers raise the errors that a site's handlers write to standard error.
    monkeypatch.setattr(logging.getLogger("mcp_django"), "propagate", False)
    monkeypatch.setattr(logging, "lastResort", logging.NullHandler())
    assert [tool["name"] for tool in real_client(server=server).list_tools()] == ["shown"]
