"""What can be declared, and the errors that say what to write instead."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django import forms
from django.core.exceptions import ImproperlyConfigured

from mcp_django import Annotations, Context, Icon, MCPServer
from mcp_django.components.component import Component
from mcp_django.exceptions import AlreadyRegistered, NotRegistered
from mcp_django.test import MCPClient
from tests.kit.servers import open_to_all
from tests.spec import spec


class Greeter:
    """Greets, as an instance and by its methods."""

    def __call__(self, name: str) -> str:
        """Greet from an instance."""
        return f"instance {name}"

    def greet(self, name: str) -> str:
        """Greet from a method."""
        return f"method {name}"

    async def greet_later(self, name: str) -> str:
        """Greet from an async method."""
        return f"async {name}"


class AsyncGreeter:
    async def __call__(self, name: str) -> str:
        """Greet later from an instance."""
        return f"async instance {name}"


class NumberForm(forms.Form):
    n = forms.IntegerField()


def greet(greeting: str, name: str) -> str:
    """Greet in a way."""
    return f"{greeting} {name}"


@pytest.fixture
def server():
    return open_to_all()


# Ways to declare ------------------------------------------------------------------------------


def test_a_bare_decorator_returns_the_function(server):
    def plain() -> str:
        """Say so."""
        return "plain"

    assert server.tool(plain) is plain
    assert server.prompt(plain) is plain
    assert [tool["name"] for tool in MCPClient(server=server).list_tools()] == ["plain"]


def test_a_called_decorator_returns_the_function(server):
    def plain(value: str = "") -> str:
        return "plain"

    assert server.tool()(plain) is plain
    assert server.tool("other")(plain) is plain
    assert server.tool("titled", title="Titled")(plain) is plain
    assert server.prompt("prompt", title="Titled")(plain) is plain
    assert server.resource("x://y/{value}")(plain) is plain
    assert server.completion("prompt", "value")(plain) is plain
    assert [*server.tools] == ["plain", "other", "titled"]
    assert plain() == "plain"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Greeter(), "instance Ada"),
        (Greeter().greet, "method Ada"),
        (Greeter().greet_later, "async Ada"),
        (AsyncGreeter(), "async instance Ada"),
        (functools.partial(greet, "hello"), "hello Ada"),
        (functools.partial(greet, greeting="hi"), "hi Ada"),
        (functools.partial(Greeter().greet_later), "async Ada"),
    ],
)
def test_any_callable_is_a_tool(server, function, expected):
    server.tool("callable")(function)
    assert MCPClient(server=server).call_tool("callable", {"name": "Ada"}).text == expected


def test_name_and_description_come_from_the_function_and_may_be_replaced(server):
    server.tool(greet)
    server.tool("named", description="Another.")(greet)
    server.tool(Greeter().greet_later)
    server.tool(functools.partial(Greeter(), name="x"))
    described = {t["name"]: t["description"] for t in MCPClient(server=server).list_tools()}
    assert described == {
        "Greeter": "Greets, as an instance and by its methods.",
        "greet": "Greet in a way.",
        "greet_later": "Greet from an async method.",
        "named": "Another.",
    }


def test_context_is_found_by_its_annotation_and_invisible(server):
    @server.tool
    def first(ctx: Context, n: int) -> str:
        return f"{ctx.server.name} {n}"

    @server.tool
    def last(n: int, *, anything: Context) -> str:
        return f"{anything.server.name} {n}"

    @server.tool
    def optional(n: int, ctx: Context | None = None) -> str:
        assert ctx is not None
        return f"{ctx.server.name} {n}"

    client = MCPClient(server=server)
    for tool in client.list_tools():
        assert list(tool["inputSchema"]["properties"]) == ["n"]
        assert client.call_tool(tool["name"], {"n": 1}).text == "inline 1"


# Mistakes -------------------------------------------------------------------------------------


def refused(declare: Callable[[], Any], *named: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        declare()
    for name in named:
        assert name in str(caught.value)


def first(n: int = 1) -> int:
    return n


def many(*values: int) -> int:
    return len(values)


def anything(**values: int) -> int:
    return len(values)


def no_value() -> list[str]:
    return []


def two_contexts(a: Context, b: Context) -> None: ...


def unresolvable(a: Nowhere) -> None: ...  # noqa: F821


@spec("TOOL-12")
@pytest.mark.parametrize("name", ["with space", "a/b", "ü", "x" * 129, "a\n"])
def test_a_tool_name_outside_the_alphabet_is_refused(server, name):
    refused(lambda: server.tool(name)(first), "pass a name", "A-Z")
    server.tool("x" * 128)(first)
    server.tool("Az09_-.")(first)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"titel": "x"}, ["titel", "'title'"]),
        ({"function": 1}, ["function"]),
        ({"wholly_unknown": 1}, ["wholly_unknown", "it has"]),
        ({"icons": Icon("https://x.test/i.png")}, ["icons=["]),
        ({"icons": ["https://x.test/i.png"]}, ["'odd'", "Icon("]),
        ({"scopes": "orders"}, ["scopes=['orders']"]),
        ({"scopes": ["a b"]}, ["'odd'", "'a b'"]),
        ({"scopes": ['a"']}, ["'odd'"]),
        ({"timeout": 0}, ["'odd'", "timeout is 0"]),
        ({"timeout": -1}, ["'odd'", "timeout is -1"]),
        ({"meta": 5}, ["meta", "dictionary"]),
        ({"meta": {"a": object()}}, ["'odd'", "meta"]),
        ({"read_only": True, "destructive": True}, ["'odd'", "keep one"]),
        ({"read_only": "yes"}, ["'odd'", "read_only", "True or False"]),
        ({"input_schema": 5}, ["input_schema", "dictionary"]),
        ({"input_schema": {"type": "array"}}, ["input_schema", '"type": "object"']),
        ({"output_schema": "x"}, ["output_schema", "dictionary"]),
        ({"input_schema": {"type": "object"}, "form": NumberForm}, ["input_schema, form", "one"]),
    ],
)
def test_a_mistaken_option_of_a_tool_is_named(server, options, named):
    refused(lambda: server.tool("odd", **options)(first), *named)
    assert not server.tools


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (many, ["many", "*values"]),
        (anything, ["anything", "**values"]),
        (two_contexts, ["two_contexts", "a, b", "keep one"]),
        (unresolvable, ["unresolvable", "Nowhere", "top level"]),
        (Greeter, ["Greeter", "class", "instance"]),
    ],
)
def test_a_function_that_cannot_be_offered_is_named(server, function, named):
    refused(lambda: server.tool(function), *named)
    refused(lambda: server.tool("named")(function), *named)
    refused(lambda: server.prompt("named")(function), *named)


@pytest.mark.parametrize(
    ("uri", "options", "named"),
    [
        ("no-scheme", {}, ["'no-scheme'", "scheme"]),
        ("shop://a b", {}, ["shop://a b"]),
        ("shop://x", {"cache_ttl": 60}, ["cache_ttl is 60", "timedelta"]),
        ("shop://x", {"cache_ttl": timedelta(-1)}, ["cache_ttl", "negative"]),
        ("shop://x", {"size": -1}, ["size is -1", "bytes"]),
        ("shop://x", {"annotations": {"priority": 1}}, ["annotations", "Annotations("]),
        ("shop://x/{n", {}, ["shop://x/{n"]),
        ("shop://x/{m}", {}, ["'m'", "no such parameter"]),
        ("shop://x/{n}", {"size": 1}, ["size", "fixed"]),
        ("shop://x/{#n}", {}, ["{#n}"]),
    ],
)
def test_a_mistaken_resource_is_named(server, uri, options, named):
    refused(lambda: server.resource(uri, **options)(first), *named)


def test_a_parameter_that_no_variable_fills_is_named(server):
    def needs(n: int, m: int) -> int:
        return n + m

    refused(lambda: server.resource("shop://x/{n}")(needs), "'m'", "no default")
    refused(lambda: server.resource("shop://x")(needs), "no default")


def test_decorators_used_the_wrong_way_say_how(server):
    decorate: Any = server.resource
    refused(lambda: decorate(first), "The URI of a resource")
    misused: Any = server.tool
    refused(lambda: misused(first, title="x"), "title=…")
    refused(lambda: misused(5), "pass a function or a name")


@spec("TOOL-12")
def test_a_second_component_of_the_name_is_refused(server):
    server.tool(first)
    server.resource("shop://x")(first)
    server.resource("shop://x/{n}")(first)
    server.prompt(first)
    server.completion(first, "n")(lambda value: [])
    again: list[Callable[[], Any]] = [
        lambda: server.tool(first),
        lambda: server.resource("shop://x")(first),
        lambda: server.resource("shop://x/{n}")(first),
        lambda: server.prompt(first),
        lambda: server.completion("first", "n")(lambda value: []),
    ]
    for declare in again:
        with pytest.raises(AlreadyRegistered, match="already"):
            declare()


def test_a_completion_has_to_fit_its_target(server):
    def completed(n: str, other: str = "") -> str:
        return n

    server.prompt(completed)
    server.resource("shop://x")(first)
    with pytest.raises(NotRegistered, match="declare it before"):
        server.completion("missing", "n")
    with pytest.raises(NotRegistered):
        server.completion(first, "n")(lambda value: [])
    refused(lambda: server.completion(completed, "m")(lambda value: []), "'m'", "n, other")
    refused(lambda: server.completion(completed, "n")(no_value), "typed value")
    refused(lambda: server.completion(completed, "n")(lambda v, othre: []), "'othre'", "n, other")
    refused(lambda: server.completion(completed, "n")(lambda v, **rest: []), "**rest")


@spec("MET-1", "MET-2", "MET-3")
@pytest.mark.parametrize(
    "key",
    [
        "progressToken",
        "traceparent",
        "io.modelcontextprotocol/x",
        "com.mcp.tools/x",
        "mcp.dev/x",
        "-x",
        "a b",
        "1label/x",
    ],
)
def test_reserved_and_malformed_meta_keys_are_refused(server, key):
    refused(lambda: server.tool("odd", meta={key: 1})(first), "'odd'", repr(key))


# Taking away ----------------------------------------------------------------------------------


def test_unregistering_takes_the_completions_along(server):
    greeter = Greeter()
    server.prompt(greeter.greet)
    server.completion(greeter.greet, "name")(lambda value: ["x"])
    server.unregister(greeter.greet)
    assert not server.prompts
    assert not server.registry.completions
    with pytest.raises(NotRegistered, match="greet"):
        server.unregister(greeter.greet)


def test_a_component_itself_can_be_unregistered(server):
    server.tool("a")(first)
    server.tool("b")(first)
    server.unregister(server.tools["a"])
    assert [*server.tools] == ["b"]
    server.resource("shop://x", annotations=Annotations(priority=1))(first)
    server.unregister(first)
    assert [*server.registry] == []


class Listing(MCPServer):
    """Records the names of added components."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.added: list[str] = []

    def add(self, component: Component) -> None:
        self.added.append(component.name)
        super().add(component)


def test_a_server_of_the_site_may_see_what_is_added():
    server = Listing("listing")

    @server.tool(task="required", polling_fallback=True)
    def work() -> str:
        return ""

    @server.resource("listing://about")
    def about() -> str:
        return ""

    @server.prompt
    def toast() -> str:
        return ""

    @server.tool(ui="shop/orders.html")
    def shown() -> dict[str, int]:
        return {}

    page = server.added.pop()
    assert server.added == ["work", "get_result", "about", "toast", "shown"]
    assert page in {app_page.name for app_page in server.registry.app_pages}
