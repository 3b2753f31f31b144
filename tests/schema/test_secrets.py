"""No form has a field for a secret (ASK-15)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NotRequired

import pytest
from pydantic import SecretStr
from typing_extensions import TypedDict

from mcp_django.schema.elicitation import NotFlatError, check_flat, flat_form
from mcp_django.schema.secrets import (
    EVENT,
    FORM,
    HIDDEN,
    LOG,
    MESSAGE,
    PAGE,
    PERSON,
    is_secret,
    is_secret_name,
    mask,
    mask_secrets,
)
from tests.schema import elicited
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
def test_a_field_by_the_name_of_a_secret_is_refused(name):
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
def test_a_field_that_says_that_it_is_secret_is_refused(member):
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
def test_what_is_no_secret_passes(name, member):
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
def test_types_that_ask_for_secrets_are_refused(declared):
    assert "looks like a secret, which must not pass through the client" in elicited.refusal(
        declared
    )


HIDDEN_NAMES = (
    *(
        "password",
        "new_pin",
        "OTP",
        "passcode",
        "email_box_pass",
        "totpCode",
        "salt",
        "ssn",
        "Authorization",
    ),
    *("recovery_code", "securityCode", "tokens", "credentials", "session_key", "apiKey"),
)
SHOWN_NAMES = ("pinned", "spin", "state", "code", "zip_code", "key", "hashtag", "token_count")


@pytest.mark.parametrize("name", HIDDEN_NAMES)
def test_what_has_the_name_of_a_secret_is_shown_to_nobody(name):
    assert is_secret_name(name)
    for kind in ("string", "integer", "number"):
        assert is_secret(form(**{name: {"type": kind}}), (name,))
    assert not is_secret(form(**{name: {"type": "boolean"}}), (name,))
    # Members of an object with such a name are hidden, too.
    assert is_secret(form(**{name: {"type": "object"}}), (name, "x"))
    assert is_secret({}, ("outer", name, 3, "x"))


@pytest.mark.parametrize("name", SHOWN_NAMES)
def test_what_only_sounds_like_one_is_shown(name):
    assert not is_secret_name(name)
    assert not is_secret(form(**{name: {"type": "string"}}), (name,))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mcp_" + "a" * 20, HIDDEN),
        ("mcp_short", "mcp_short"),
        ("see eyJh.eyJz.c2ln!", f"see {HIDDEN}!"),
        ("Authorization: bearer abc", f"Authorization: {HIDDEN}"),
        # An ellipsis alone is a placeholder for a credential; the rest of the sentence is none.
        ("send 'Authorization: Bearer …'.", "send 'Authorization: Bearer …'."),
        ("Bearer …abc", HIDDEN),
        ("Basic dXNlcjpwYXNz", HIDDEN),
        ("Basic dXNlcjpw-YXNz_w==, x", f"{HIDDEN}, x"),
        ("a basic idea", "a basic idea"),
        ("a-eyJh.eyJz.c2ln!", f"a-{HIDDEN}!"),
        ("a-eyJ-b eyJ- eyJ.a.b -eyJ.a.b", "a-eyJ-b eyJ- eyJ.a.b -eyJ.a.b"),
        (f"a-mcp_{'b' * 20}-eyJh.eyJz.c2ln", f"a-{HIDDEN}.eyJz.c2ln"),
        ("mcp_short-eyJh.eyJz.c2ln", f"mcp_short-{HIDDEN}"),
        ("//x-eyJh.eyJz.c2ln:p@y", f"//x-{HIDDEN}:p@y"),
        ("://x-eyJh.eyJz.c2ln:p@y", f"://{HIDDEN}@y"),
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
def test_what_looks_like_a_secret_is_hidden_in_a_text(text, shown):
    assert mask_secrets(text) == shown


def test_a_text_of_many_beginnings_of_a_secret_is_searched_once():
    # This would take minutes if each beginning were followed to the end of the text.
    text = "eyJ-" * 200_000
    assert mask_secrets(text) == text


# Values -------------------------------------------------------------------------------------------

BEARER = "mcp_" + "a" * 20
LOOKS = [(LOG, HIDDEN), (PERSON, HIDDEN), (EVENT, HIDDEN), (PAGE, "•••")]


@pytest.mark.parametrize(("limits", "hidden"), LOOKS)
def test_what_looks_like_a_secret_is_hidden_wherever_it_stands(limits, hidden):
    value = {"note": f"it is {BEARER}.", "list": [BEARER, {"x": "Bearer b"}], BEARER: 1}
    assert mask(value, {}, limits=limits) == {
        "note": f"it is {hidden}.",
        "list": [hidden, {"x": hidden}],
        hidden: 1,
    }


@pytest.mark.parametrize(("limits", "hidden"), LOOKS)
def test_names_that_become_equal_hide_no_member(limits, hidden):
    value = {BEARER: 1, f"{BEARER}b": 2, f"{hidden} (3)": 3, f"{BEARER}c": 4}
    masked = mask(value, {}, limits=limits)
    assert masked == {hidden: 1, f"{hidden} (2)": 2, f"{hidden} (3)": 3, f"{hidden} (4)": 4}


def test_names_that_only_look_different_hide_no_member():
    value = {"a\u200b": 1, "a\\u{200b}": 2}
    assert mask(value, {}, limits=PERSON) == {"a\\u{200b}": 1, "a\\u{200b} (2)": 2}


@pytest.mark.parametrize(("limits", "hidden"), [(LOG, HIDDEN), (PAGE, "•••")])
def test_the_size_of_a_secret_is_one_too(limits, hidden):
    objects = {"type": "object"}
    schema = form(pin={"type": "array", "items": {"type": "integer"}}, credentials=objects)
    members = {str(n): n for n in range(300)}
    value = {"pin": [7] * 300, "credentials": members, "n": [7] * 300}
    masked = mask(value, schema, limits=limits)
    assert (len(masked["pin"]), set(masked["pin"])) == (limits.members + 1, {hidden})
    assert set(masked["credentials"].values()) == {hidden}
    assert masked["n"][-1] == {LOG: "… 250 more", PAGE: "… (300)"}[limits]


def test_nothing_is_shown_below_the_depth():
    deep: Any = ["short", "long" * 1000, 1, {}]
    for _ in range(MESSAGE.depth):
        deep = [deep]
    masked = mask(deep, {}, limits=MESSAGE)
    for _ in range(MESSAGE.depth):
        [masked] = masked
    assert masked == ["…", "…", "…", "…"]


def test_a_value_is_cut_whatever_its_shape():
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    assert "…" in str(mask(deep, {}, limits=MESSAGE))
    assert len(mask(list(range(1000)), {}, limits=MESSAGE)) == 201
    assert len(mask({str(n): n for n in range(1000)}, {}, limits=MESSAGE)) == 201


def test_a_form_gets_everything_but_secrets_as_it_was():
    schema = form(
        pair={"type": "array", "prefixItems": [{"writeOnly": True}], "items": {}},
        note={"type": "string"},
    )
    value = {"pair": ["x", "y", "z"], "note": f"it is {BEARER}", "pin": "1", BEARER: 2, "own": 3}
    assert mask(value, schema, sensitive=["own"], limits=FORM) == {
        "pair": ["y", "z"],
        "note": f"it is {BEARER}",
        BEARER: 2,
    }


def test_all_values_of_the_log_share_a_limit():
    masked = mask({str(n): "x" * 400 for n in range(50)}, {})
    assert masked["24"] == "x" * 400
    assert masked["25"] == "…"


def test_a_long_name_is_judged_and_not_remembered():
    assert is_secret_name("long_" * 1000 + "password")
    assert not is_secret_name("long_" * 1000)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Decimal(1), 1),
        (Decimal("1.50"), "1.50"),
        (Decimal("1e2"), "1E+2"),
        ((1, 2), [1, 2]),
        ({2, 1}, [1, 2]),
        (b"x", "b'x'"),
        (None, None),
    ],
)
def test_any_value_becomes_json(value, shown):
    assert mask(value, {}) == shown
