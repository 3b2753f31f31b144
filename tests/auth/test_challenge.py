"""The `WWW-Authenticate` header."""

from __future__ import annotations

from mcp_django.auth.challenge import challenge
from mcp_django.exceptions import AuthenticationRequired, ConnectionRefused, InsufficientScope


def test_a_challenge_says_what_is_wrong_and_what_is_needed() -> None:
    assert challenge(AuthenticationRequired("Sign in.")) == 'Bearer realm="mcp"'
    assert challenge(InsufficientScope("More.", scopes=["a", "b"])) == (
        'Bearer realm="mcp", error="insufficient_scope", error_description="More.", scope="a b"'
    )
    assert challenge(
        AuthenticationRequired("x"), parameters={"resource_metadata": "https://x"}
    ) == ('Bearer realm="mcp", resource_metadata="https://x"')
    assert challenge(ConnectionRefused("Never.")) is None


def test_a_value_cannot_leave_its_quotes_or_its_line() -> None:
    header = challenge(AuthenticationRequired('a"b\\c\r\nSet-Cookie: ü', error="invalid_token"))
    assert header == (
        'Bearer realm="mcp", error="invalid_token", error_description="a\'bcSet-Cookie: "'
    )
