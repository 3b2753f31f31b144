"""No form has a field for a secret (ASK-15)."""

from __future__ import annotations

from typing import Any, NotRequired

import pytest
from pydantic import SecretStr
from typing_extensions import TypedDict

from mcp_django.schema.elicitation import NotFlatError, check_flat, flat_form
from mcp_django.schema.secrets import HIDDEN, is_secret, is_secret_name, mask_secrets
from tests.schema import asked
from tests.spec import spec


def form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def refusal(schema: Any, *, by: Any = flat_form) -> str:
    with pytest.raises(NotFlatError) as caught:
        by(schema)
    return str(caught.value)


@spec("ASK-15")
@pytest.mark.parametrize(
    "name",
    [
        *("password", "Password", "new_password", "password1", "passwordAgain", "PASSWORD"),
        *("passwd", "passphrase", "secret", "client_secret", "clientSecret", "secretKey"),
        *("api_key", "apiKey", "APIKey", "api-key", "apikey", "stripe_api_key", "private_key"),
        *("access_token", "accessToken", "refresh_token", "token"),
        *("card_number", "cardNumber", "credit_card", "cvc", "cvv", "card_cvc"),
    ],
)
def test_a_field_by_the_name_of_a_secret_is_refused(name: str) -> None:
    for kind in ("string", "integer"):
        for check in (flat_form, check_flat):
            text = refusal(form(**{name: {"type": kind}}), by=check)
            assert text == (
                f"{name} looks like a secret, which must not pass through the client; send the "
                "user to a page of your site with elicit_url"
            )


@spec("ASK-15")
@pytest.mark.parametrize(
    "member",
    [
        {"type": "string", "writeOnly": True},
        {"type": "string", "format": "password"},
        {"anyOf": [{"type": "string", "writeOnly": True}, {"type": "null"}]},
        {"anyOf": [{"type": "string", "format": "password"}, {"type": "null"}]},
    ],
)
def test_a_field_that_says_that_it_is_secret_is_refused(member: Any) -> None:
    assert "x looks like a secret" in refusal(form(x=member))


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("secret", {"type": "boolean"}),
        ("reset_password", {"type": "boolean"}),
        ("token", {"type": "string", "enum": ["bitcoin", "ether"]}),
        ("password", {"type": "array", "items": {"enum": ["rotate", "expire"]}}),
        ("secretary", {"type": "string"}),
        ("compass", {"type": "string"}),
        ("max_tokens", {"type": "integer"}),
        ("token_count", {"type": "integer"}),
        ("key", {"type": "string"}),
        ("number", {"type": "string"}),
        ("card", {"type": "string"}),
    ],
)
def test_what_is_no_secret_passes(name: str, member: Any) -> None:
    assert flat_form(form(**{name: member}))["properties"].keys() == {name}


@spec("ASK-15")
@pytest.mark.parametrize(
    "declared",
    [
        SecretStr,
        SecretStr | None,
        TypedDict("Login", {"user": str, "password": str}),
        TypedDict("Login", {"user": str, "code": SecretStr}),
        TypedDict("Login", {"user": str, "code": NotRequired[SecretStr | None]}),
    ],
)
def test_types_that_ask_for_secrets_are_refused(declared: Any) -> None:
    assert "looks like a secret, which must not pass through the client" in asked.refusal(declared)


HIDDEN_NAMES = (
    *("password", "new_pin", "OTP", "passcode", "totpCode", "salt", "ssn", "Authorization"),
    *("recovery_code", "securityCode", "tokens", "credentials", "session_key", "apiKey"),
)
SHOWN_NAMES = ("pinned", "spin", "state", "code", "zip_code", "key", "hashtag", "token_count")


@pytest.mark.parametrize("name", HIDDEN_NAMES)
def test_what_has_the_name_of_a_secret_is_shown_to_nobody(name: str) -> None:
    assert is_secret_name(name)
    for kind in ("string", "integer", "number"):
        assert is_secret(form(**{name: {"type": kind}}), (name,))
    assert not is_secret(form(**{name: {"type": "boolean"}}), (name,))
    # Nor what is in it, whatever that is called.
    assert is_secret(form(**{name: {"type": "object"}}), (name, "x"))
    assert is_secret({}, ("outer", name, 3, "x"))


@pytest.mark.parametrize("name", SHOWN_NAMES)
def test_what_only_sounds_like_one_is_shown(name: str) -> None:
    assert not is_secret_name(name)
    assert not is_secret(form(**{name: {"type": "string"}}), (name,))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mcp_" + "a" * 20, HIDDEN),
        ("mcp_short", "mcp_short"),
        ("see eyJh.eyJz.c2ln!", f"see {HIDDEN}!"),
        ("Authorization: bearer abc", f"Authorization: {HIDDEN}"),
        ("Basic dXNlcjpwYXNz", HIDDEN),
        ("a basic idea", "a basic idea"),
        ("postgres://ada:hush@db:5432/x", f"postgres://{HIDDEN}@db:5432/x"),
        ("https://a.example/x@y:z", "https://a.example/x@y:z"),
        (
            "https://a.example/?q=1&Access_Token=abc&r=2",
            f"https://a.example/?q=1&Access_Token={HIDDEN}&r=2",
        ),
        ("https://a.example/cb?code=abc#x", f"https://a.example/cb?code={HIDDEN}"),
        ("token=abc", "token=abc"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_in_a_text(text: str, shown: str) -> None:
    assert mask_secrets(text) == shown
