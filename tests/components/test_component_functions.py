"""Where a tool's arguments come from, and how its function gets them."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import Annotated, Any

import pytest
from django import forms
from django.core.exceptions import ImproperlyConfigured

from mcp_django import Context, Header
from mcp_django.components.component import inspect_function
from mcp_django.test import MCPClient
from tests.kit.servers import call, open_to_all
from tests.spec import spec


class BookingForm(forms.Form):
    """Seats on a day."""

    day = forms.DateField()
    seats = forms.IntegerField(min_value=1, required=False)


@pytest.fixture
def server():
    return open_to_all()


def test_a_form_declares_and_checks_the_arguments(server):
    @server.tool(form=BookingForm)
    def book(ctx: Context, form: BookingForm) -> str:
        return f"{type(form.cleaned_data['day']).__name__} {form.cleaned_data['seats']}"

    client = MCPClient(server=server)
    (tool,) = client.list_tools()
    assert set(tool["inputSchema"]["properties"]) == {"day", "seats"}
    assert tool["inputSchema"]["required"] == ["day"]
    assert client.call_tool("book", {"day": "2026-03-01", "seats": 2}).text == "date 2"
    wrong = client.call_tool("book", {"day": "2026-03-01", "seats": 0}, check=False)
    assert wrong.is_error
    assert "seats" in wrong.text


def test_a_function_has_to_take_the_form(server):
    with pytest.raises(ImproperlyConfigured, match="'form'"):
        server.tool("book", form=BookingForm)(lambda day, seats: "x")


@pytest.mark.skipif(find_spec("rest_framework") is None, reason="REST framework is missing")
def test_a_serializer_declares_and_checks_the_arguments(server):
    from rest_framework import serializers

    class Booking(serializers.Serializer[Any]):
        day = serializers.DateField()
        seats = serializers.IntegerField(min_value=1, default=1)

    @server.tool(serializer=Booking)
    def book(serializer: Any) -> str:
        data = serializer.validated_data
        return f"{type(data['day']).__name__} {data['seats']}"

    client = MCPClient(server=server)
    assert client.call_tool("book", {"day": "2026-03-01"}).text == "date 1"
    assert client.call_tool("book", {"day": "x"}, check=False).is_error


@spec("RPC-14", "OUT-7", "OUT-8")
@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://example.test/dialect", "type": "object"},
        {"type": "object", "properties": {"a": {"$ref": "https://example.test/a"}}},
        {"type": "object", "properties": {"a": {"type": "nothing"}}},
        {
            "type": "object",
            "properties": {"a": functools.reduce(lambda s, _: {"items": s}, range(500), {})},
        },
    ],
)
def test_a_schema_that_cannot_be_published_is_refused(server, schema):
    pytest.importorskip("jsonschema")
    with pytest.raises(ImproperlyConfigured):
        server.tool("tool", input_schema=schema)(lambda **anything: "x")
    with pytest.raises(ImproperlyConfigured):
        server.tool("tool", input_schema=schema)(lambda a=None: "x")
    assert not server.tools


def two_regions(
    a: Annotated[str, Header("Region")], b: Annotated[str, Header("region")]
) -> str: ...


def a_list(a: Annotated[list[str], Header("Region")]) -> str: ...


def a_number(a: Annotated[float, Header("Region")]) -> str: ...


@spec("HDR-13", "HDR-14")
@pytest.mark.parametrize("function", [two_regions, a_list, a_number])
def test_a_header_that_cannot_be_mirrored_is_refused(server, function):
    with pytest.raises(ImproperlyConfigured, match=r"(?i)header|region"):
        server.tool("tool")(function)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "ä"])
@spec("HDR-13", "HDR-14")
def test_a_header_name_is_a_token(server, name):
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": name}}}
    with pytest.raises(ImproperlyConfigured, match="tool 'tool'"):
        server.tool("tool", input_schema=schema)(lambda a="": "x")


# How the function is called -------------------------------------------------------------------


def by_position(a: int, /, b: int, *, c: int = 3) -> str:
    return f"{a} {b} {c}"


def context_by_position(ctx: Context, a: int, /) -> str:
    return f"{ctx.server.name} {a}"


def test_parameters_of_every_kind_are_filled():
    assert call(by_position, a=1, b=2).text == "1 2 3"
    assert call(by_position, a=1, b=2, c=4).text == "1 2 4"
    assert call(context_by_position, a=1).text == "inline 1"
    assert call(functools.partial(by_position, c=9), a=1, b=2).text == "1 2 9"


def wrapped() -> Any:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return f"[{function(*args, **kwargs)}]"

        return wrapper

    return decorate(by_position)


def test_a_decorated_function_keeps_its_signature():
    assert call(wrapped(), a=1, b=2).text == "[1 2 3]"


async def later() -> None: ...


async def stream() -> Any:
    yield 1


class Later:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (later, True),
        (stream, True),
        (Later(), True),
        (functools.partial(later), True),
        (functools.partial(Later()), True),
        (by_position, False),
        (lambda: None, False),
    ],
)
def test_the_color_of_a_function_is_seen(function, is_async):
    assert inspect_function(function).is_async is is_async


def test_what_is_not_callable_is_refused():
    odd: Any = 5
    with pytest.raises(ImproperlyConfigured, match="5 is not callable"):
        inspect_function(odd)
