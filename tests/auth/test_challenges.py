"""The `WWW-Authenticate` header."""

import re

import pytest

from mcp_django.auth.challenges import build_challenge
from mcp_django.exceptions import AuthenticationRequired, ConnectionRefused, InsufficientScope
from tests.spec import spec


def test_a_challenge_says_what_is_wrong_and_what_is_needed():
    assert build_challenge(AuthenticationRequired("Sign in.")) == 'Bearer realm="mcp"'
    assert build_challenge(InsufficientScope("More.", scopes=["a", "b"])) == (
        'Bearer realm="mcp", error="insufficient_scope", scope="a b", error_description="More."'
    )
    assert build_challenge(
        AuthenticationRequired("x"), parameters={"resource_metadata": "https://x"}
    ) == ('Bearer realm="mcp", resource_metadata="https://x"')
    assert build_challenge(ConnectionRefused("Never.")) is None


def test_a_value_cannot_leave_its_quotes_or_its_line():
    header = build_challenge(
        AuthenticationRequired('a"b\\c\r\nSet-Cookie: ü', error="invalid_token")
    )
    assert header == (
        'Bearer realm="mcp", error="invalid_token", error_description="a\'bcSet-Cookie: "'
    )


@spec("AUT-13")
@pytest.mark.parametrize(
    "break_", ["\r\nSet-Cookie: a=b", "\n", "\0", '"', "\\", "\x7f", "\u2028", "ü"]
)
def test_threat_20_no_value_of_a_challenge_can_add_a_header_or_a_parameter(break_):
    evil = f'x{break_}", error="none'
    refusal = InsufficientScope(evil, scopes=[evil], granted=[evil])
    for scopes in (None, [evil]):
        header = build_challenge(refusal, scopes=scopes, parameters={"resource_metadata": evil})
        assert header is not None
        assert header.isascii()
        assert header.isprintable()
        assert header.count('"') == 2 * len(re.findall(r'[a-z_]+="[^"]*"', header)) == 10
        assert "\\" not in header


def test_a_scope_stands_before_the_description_and_is_never_empty():
    # Three SDKs read the first scope= of the header, and would take two quotes for a scope's name.
    refusal = InsufficientScope('Ask for scope="everything".', scopes=["a"])
    for scopes in (None, ["a"]):
        header = str(build_challenge(refusal, scopes=scopes, parameters={"resource_metadata": "u"}))
        assert re.findall(r'scope="?([^",]+)', header)[0] == "a"
        assert header.index("resource_metadata=") < header.index("error_description=")
    for none in ([], [""], ["offline_access"]):
        for refused in (
            AuthenticationRequired("x", error="invalid_token", scopes=none),
            InsufficientScope("x", scopes=none),
        ):
            assert "scope=" not in str(build_challenge(refused, scopes=none))


@spec("AUT-12")
def test_no_challenge_asks_for_a_refresh_token():
    refusal = InsufficientScope("More.", scopes=["offline_access", "a"])
    assert 'scope="a"' in str(build_challenge(refusal))
    assert 'scope="b"' in str(build_challenge(refusal, scopes=["b", "offline_access"]))
    assert "scope=" not in str(
        build_challenge(AuthenticationRequired("x", scopes=["offline_access"]))
    )
