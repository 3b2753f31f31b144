"""What the call log stores of arguments: names, a digest, and values if enabled."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from django.test import override_settings
from pydantic import BaseModel, SecretStr

from mcp_django import MCPServer
from mcp_django.auth.permissions import IsStaff
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.models import Call
from tests.execution.test_call_log import read, server, the_call
from tests.kit.servers import open_to_all, person, real_client

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("call_log")]


class Card(BaseModel):
    """How to pay."""

    number: SecretStr
    name: str


def pay(card: Card, amount: int, pin_code: str, api_key: str = "", note: str = "") -> str:
    """Pay."""
    return "paid"


# Long values, because digests, tokens and times may contain short ones by chance.
NUMBER, PIN, KEY = "4111-1111-1111", "12-34-56-78", "key-of-ada"
ARGUMENTS = {
    "card": {"number": NUMBER, "name": "Ada"},
    "amount": 3,
    "pin_code": PIN,
    "api_key": KEY,
    "note": "x" * 600,
}


def test_values_are_logged_where_somebody_says_so_and_secrets_never():
    made = server(pay, log_arguments=True, sensitive=["pin_code"])
    real_client(server=made).call_tool("pay", ARGUMENTS)
    line = the_call()
    assert line.arguments == {
        "card": {"number": "[hidden]", "name": "Ada"},
        "amount": 3,
        "pin_code": "[hidden]",
        "api_key": "[hidden]",
        "note": "x" * 500 + "… (cut)",
    }
    everything = str(Call.objects.values().get())
    assert not any(secret in everything for secret in (NUMBER, PIN, KEY))


BEARER = "Bearer BEARER-SECRET"
OWN = "mcp_" + "Z" * 43


def login_to(username: str, password: str, pin: str, credentials: dict[str, str], note: str) -> str:
    """Sign in."""
    return "in"


def test_what_has_the_name_or_the_look_of_a_secret_is_never_logged():
    made = server(login_to, log_arguments=True)
    values = {"username": "u", "password": "PASS", "pin": "PIN-4711", "credentials": {"x": BEARER}}
    note = f"{'x' * 480} Authorization: {BEARER} and {OWN}"
    real_client(server=made).call_tool("login_to", {**values, "note": note, OWN: 1}, check=False)
    line = the_call()
    assert line.arguments == {
        "username": "u",
        "password": "[hidden]",
        "pin": "[hidden]",
        "credentials": {"x": "[hidden]"},
        "note": f"{'x' * 480} Authorization: [hid… (cut)",
        "[hidden]": 1,
    }
    everything = str(Call.objects.values().get())
    assert not any(
        secret in everything for secret in ("PASS", "PIN-4711", "BEARER-SECRET", "Z" * 20)
    )


class Wallet(BaseModel):
    """What is carried along."""

    pins: list[SecretStr] = []


def carry(
    pins: list[SecretStr],
    wallets: list[Wallet],
    pair: tuple[SecretStr, int],
    by_name: dict[str, SecretStr],
    password: list[str],
    keys: list[str],
) -> str:
    """Carry secrets in lists."""
    return "carried"


CARRIED = {
    "pins": ["hunter-1"],
    "wallets": [{"pins": ["hunter-2"]}],
    "pair": ["hunter-3", 7],
    "by_name": {"a": "hunter-4"},
    "password": ["hunter-5"],
    "keys": ["hunter-6"],
}


def test_a_secret_in_a_list_is_one_too():
    made = server(carry, log_arguments=True, sensitive=["keys"])
    assert real_client(server=made).call_tool("carry", CARRIED).text == "carried"
    line = the_call()
    assert "hunter" not in str(Call.objects.values().get())
    assert line.arguments["wallets"] == [{"pins": ["[hidden]"]}]
    assert line.arguments["keys"] == "[hidden]"


@pytest.mark.parametrize(
    ("component", "of_server", "setting", "logged"),
    [
        (None, None, False, False),
        (None, None, True, True),
        (None, False, True, False),
        (None, True, False, True),
        (False, True, True, False),
        (True, False, False, True),
    ],
)
def test_the_nearest_word_about_values_counts(component, of_server, setting, logged):
    made = open_to_all(log_arguments=of_server)
    made.tool(log_arguments=component)(read)
    with override_settings(MCP_DJANGO={"LOG_ARGUMENTS": setting}):
        real_client(server=made).call_tool("read", {"n": 2})
    assert the_call().arguments == ({"n": 2} if logged else None)


def test_a_uri_is_logged_with_the_values_in_it():
    made = open_to_all(log_arguments=True)
    made.resource("shop://orders/{number}")(lambda number: number)
    made.resource("shop://cards/{card}", sensitive=["card"])(lambda card: card)
    client = real_client(server=made)
    client.read_resource("shop://orders/4711")
    client.read_resource("shop://cards/4111")
    rows = Call.objects.order_by("id").values_list("uri", "arguments")
    assert list(rows) == [
        ("shop://orders/4711", {"number": "4711"}),
        ("", {"card": "[hidden]"}),
    ]


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("shop://cards/4711", "shop://cards/{card}"),
        ("shop://card/4711?pin=4711", "shop://card/…"),
        ("shop://eve:4711@cards", "shop://cards/…"),
        ("shop://cards", "shop://cards"),
        ("urn:card:4711", "urn:…"),
        ("4711", "4711"),
    ],
)
def test_the_address_of_what_is_refused_is_kept_without_its_values(uri, kept):
    made = MCPServer("closed", permission=IsStaff)
    made.resource("shop://cards/{card}", permission="auth.view_group", sensitive=["card"])(
        lambda card: card
    )
    # The server rejects one, and the component the other.
    for user, error in (
        (person("ada"), AccessRefused),
        (person("boss", is_staff=True), MCPError),
    ):
        with pytest.raises(error):
            real_client(server=made, user=user).read_resource(uri)
    assert list(Call.objects.values_list("component", flat=True)) == [kept, kept]


def test_an_address_is_kept_whole_where_values_are_logged():
    made = open_to_all(log_arguments=True)
    made.resource("shop://about")(lambda: "a shop")
    with pytest.raises(MCPError):
        real_client(server=made).read_resource("shop://nothing/4711")
    assert the_call().component == "shop://nothing/4711"


def test_the_digest_names_arguments_without_telling_them():
    made = server(read)
    client = real_client(server=made)
    for n in (1, 1, 2):
        client.call_tool("read", {"n": n})
    first, again, second = Call.objects.order_by("id").values_list("arguments_digest", flat=True)
    assert first == again != second
    # The digest is keyed, so a reader of the table cannot compute it for each number.
    assert first != hashlib.sha256(b'{"n":1}').hexdigest()


DEEP: Any = [[[[[[[[[[[[1]]]]]]]]]]]]


@pytest.mark.parametrize(
    "value", ["a\x00b", "\ud800", "é" * 10_000, DEEP], ids=["NUL", "half", "long", "deep"]
)
def test_any_value_can_be_logged(value):
    def take(value: Any) -> None:
        """Take."""

    made = server(take, log_arguments=True)
    try:
        real_client(server=made).call_tool("take", {"value": value})
    except (MCPError, ValueError):
        return
    assert the_call().arguments is not None
