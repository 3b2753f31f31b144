"""`resources/list`, `resources/templates/list` and `resources/read`."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404
from django.utils.safestring import mark_safe

from mcp_django import Annotations, Context, MCPServer, ResourceContents, ToolError
from mcp_django.auth.permissions import IsStaff
from mcp_django.exceptions import InsufficientScope, ResourceNotFound
from mcp_django.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import open_to_all, person, real_client
from tests.spec import spec

NOT_FOUND = "Resource not found; see resources/list and resources/templates/list."


def reading(value: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the contents that a client reads of a resource that returns this value."""
    server = open_to_all()
    server.resource("shop://it", **options)(lambda: value)
    return real_client(server=server).read_resource("shop://it")


def failure(client: MCPClient, uri: str) -> ErrorResponse:
    with pytest.raises(ErrorResponse) as caught:
        client.read_resource(uri)
    return caught.value


def assert_not_found(client: MCPClient, uri: str) -> None:
    error = failure(client, uri)
    assert (error.code, error.message, error.data) == (INVALID_PARAMS, NOT_FOUND, {"uri": uri})


# Listing --------------------------------------------------------------------------------------


@spec("RSC-1", "UIX-4", "UIX-3", "MET-6")
def test_a_listed_resource_says_what_its_author_set():
    server = open_to_all()

    @server.resource(
        "shop://b",
        name="bee",
        title="B",
        mime_type="text/plain",
        size=0,
        annotations=Annotations(
            audience=("user", "assistant"),
            priority=0,
            last_modified=datetime(2026, 1, 1, tzinfo=UTC),
        ),
        meta={"com.example/a": 1},
    )
    def b() -> str:
        """The letter."""
        return "b"

    server.resource("shop://a")(b)
    assert real_client(server=server).list_resources() == [
        {"uri": "shop://a", "name": "b", "description": "The letter."},
        {
            "uri": "shop://b",
            "name": "bee",
            "title": "B",
            "description": "The letter.",
            "mimeType": "text/plain",
            "size": 0,
            "annotations": {
                "audience": ["user", "assistant"],
                "priority": 0,
                "lastModified": "2026-01-01T00:00:00Z",
            },
            "_meta": {"com.example/a": 1},
        },
    ]
    assert real_client(server=server).list_resource_templates() == []


@spec("RSC-7")
def test_a_listed_template_has_its_template_and_is_no_resource():
    server = open_to_all()

    @server.resource("shop://groups/{name}", mime_type="application/json")
    def group(name: str) -> dict[str, str]:
        """One group."""
        return {"name": name}

    client = real_client(server=server)
    assert client.list_resources() == []
    assert client.list_resource_templates() == [
        {
            "uriTemplate": "shop://groups/{name}",
            "name": "group",
            "description": "One group.",
            "mimeType": "application/json",
        }
    ]


# Reading --------------------------------------------------------------------------------------


@spec("RSC-2", "RSC-3", "RSC-5")
@pytest.mark.parametrize(
    ("value", "options", "content"),
    [
        ("words", {}, {"mimeType": "text/plain", "text": "words"}),
        ("", {}, {"mimeType": "text/plain", "text": ""}),
        (mark_safe("<p>"), {"mime_type": "text/html"}, {"mimeType": "text/html", "text": "<p>"}),
        (b"\x00\xff", {}, {"mimeType": "application/octet-stream", "blob": "AP8="}),
        (b"", {}, {"mimeType": "application/octet-stream", "blob": ""}),
        (b"x", {"mime_type": "image/png"}, {"mimeType": "image/png", "blob": "eA=="}),
        ({"a": 1}, {}, {"mimeType": "application/json", "text": '{"a":1}'}),
        ([], {}, {"mimeType": "application/json", "text": "[]"}),
        (
            ResourceContents("x", mime_type="text/css", meta={"com.example/a": 1}),
            {"mime_type": "text/plain"},
            {"mimeType": "text/css", "text": "x", "_meta": {"com.example/a": 1}},
        ),
    ],
)
def test_what_a_resource_gives_is_one_entry(value, options, content):
    assert reading(value, **options) == [{"uri": "shop://it", **content}]


@spec("RSC-2")
def test_a_resource_may_have_several_contents():
    both = [ResourceContents("a"), ResourceContents(b"b", uri="shop://it/b", mime_type="image/gif")]
    assert reading(both) == [
        {"uri": "shop://it", "mimeType": "text/plain", "text": "a"},
        {"uri": "shop://it/b", "mimeType": "image/gif", "blob": b64encode(b"b").decode()},
    ]


@spec("RSC-4", "RSC-5", "RSC-6")
@pytest.mark.parametrize(
    "uri",
    [
        "shop://missing",
        "shop://IT",
        "shop://it#part",
        "shop://it/",
        "",
        "bad uri",
        "not-absolute",
        "shop://ü",
        "shop://%zz",
        "x" * 100_000,
        "shop://" + "x" * 100_000,
        "file:///etc/passwd",
    ],
)
def test_what_answers_for_no_uri_is_not_found(uri):
    server = open_to_all()
    server.resource("shop://it")(lambda: "it")
    assert_not_found(real_client(server=server), uri)


@pytest.mark.parametrize("params", [{}, {"uri": 5}, {"uri": None}, {"uri": ["shop://it"]}])
def test_a_uri_has_to_be_text(params):
    server = open_to_all()
    server.resource("shop://it")(lambda: "it")
    with pytest.raises(ErrorResponse) as caught:
        real_client(server=server).request("resources/read", params)
    assert caught.value.code == INVALID_PARAMS


@spec("RSC-4")
@pytest.mark.parametrize(
    "exc", [Http404("x"), Group.DoesNotExist("x"), PermissionDenied("x"), PermissionDenied()]
)
def test_missing_and_forbidden_objects_are_not_found(exc):
    server = open_to_all()

    @server.resource("shop://orders/{number}")
    def order(number: int) -> str:
        raise exc

    assert_not_found(real_client(server=server), "shop://orders/5")
    assert_not_found(real_client(server=server), "shop://orders/five")


def test_other_failures_say_whose_they_are(caplog):
    failures: dict[str, Exception] = {
        "tool": ToolError("Name a year."),
        "invalid": ValidationError("Too early."),
        "bug": RuntimeError("secret"),
    }
    server = open_to_all()

    @server.resource("shop://fail/{kind}")
    def fail(kind: str) -> str:
        raise failures[kind]

    client = real_client(server=server)
    tool, invalid, bug = (failure(client, f"shop://fail/{kind}") for kind in failures)
    assert (tool.code, tool.message) == (INVALID_PARAMS, "Name a year.")
    assert (invalid.code, invalid.message) == (INVALID_PARAMS, "Too early.")
    assert bug.code == INTERNAL_ERROR
    assert "secret" not in bug.message
    assert "secret" in caplog.text


# Matching -------------------------------------------------------------------------------------


@pytest.fixture
def matching():
    server = open_to_all()
    server.resource("shop://a/{+path}")(lambda path: f"any {path}")
    server.resource("shop://a/{name}")(lambda name: f"one {name}")
    server.resource("shop://a/b{name}")(lambda name: f"b {name}")
    server.resource("shop://a/fixed")(lambda: "fixed")
    server.resource("shop://q{?x,y}")(lambda x="-", y="-": f"{x} {y}")
    server.resource("file:///srv/{+path}")(lambda path: f"file {path}")
    return real_client(server=server)


@spec("RSC-7", "RSC-12")
@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("shop://a/fixed", "fixed"),
        ("shop://a/one", "one one"),
        ("shop://a/bee", "b ee"),
        ("shop://a/b/c", "any b/c"),
        ("shop://a/x%2Fy", "any x/y"),
        ("shop://a/%C3%BC%20", "one ü "),
        ("shop://a/%2541", "one %41"),
        ("shop://q", "- -"),
        ("shop://q?y=2", "- 2"),
        ("shop://q?x=a%26b&y=", "a&b "),
        ("file:///srv/x/y.txt", "file x/y.txt"),
    ],
)
def test_the_most_specific_template_reads_a_uri(matching, uri, text):
    (content,) = matching.read_resource(uri)
    assert content["text"] == text
    assert content["uri"] == uri


@spec("RSC-6")
@pytest.mark.parametrize(
    "path",
    [
        "../etc/passwd",
        "x/../../etc/passwd",
        "%2e%2e/etc/passwd",
        "%2e%2e%2fetc%2fpasswd",
        "%252e%252e%252fetc",
        "..%5cetc",
        "x/..%5C..%5Cetc",
        "%00",
    ],
)
def test_a_path_that_leads_out_is_not_found(matching, path):
    assert_not_found(matching, f"file:///srv/{path}")


@pytest.mark.parametrize("number", ["five", "1.5", "%20", "1e3", "9" * 5000])
def test_a_variable_of_another_type_names_nothing(number):
    server = open_to_all()

    @server.resource("shop://orders/{number}")
    def order(number: int) -> str:
        raise AssertionError("must not run")

    assert_not_found(real_client(server=server), f"shop://orders/{number}")


# Hidden ---------------------------------------------------------------------------------------


@pytest.mark.django_db
@spec("RSC-4", "RSC-6", "RSC-9")
def test_a_hidden_resource_is_a_missing_one():
    server = open_to_all()
    ran: list[str] = []

    @server.resource("shop://vault", permission=IsStaff)
    @server.resource("shop://vaults/{name}", permission=IsStaff)
    def vault(name: str = "") -> str:
        ran.append(name)
        return "gold"

    user = person()
    client = real_client(server=server, user=user)
    assert client.list_resources() == []
    assert client.list_resource_templates() == []
    for uri in ("shop://vault", "shop://vaults/a", "shop://missing"):
        assert_not_found(client, uri)
    assert ran == []
    user.is_staff = True
    assert [resource["uri"] for resource in client.list_resources()] == ["shop://vault"]
    assert client.read_resource("shop://vault")[0]["text"] == "gold"


# From within a call ---------------------------------------------------------------------------


def readers() -> MCPServer:
    """Return a server whose tools read its resources."""
    server = open_to_all()

    @server.resource("shop://sync")
    def sync(ctx: Context) -> str:
        return f"sync {ctx.user.get_username()}"

    @server.resource("shop://async")
    async def later(ctx: Context) -> bytes:
        return f"async {ctx.user.get_username()}".encode()

    @server.resource("shop://vault", permission=IsStaff)
    def vault() -> str:
        return "gold"

    @server.resource("shop://scoped", scopes=["vault"])
    def scoped() -> str:
        return "gold"

    @server.tool
    def read(ctx: Context, uri: str) -> str:
        (contents,) = ctx.read_resource(uri)
        return str(contents.content)

    @server.tool
    async def read_later(ctx: Context, uri: str) -> str:
        (contents,) = await ctx.aread_resource(uri)
        return str(contents.content)

    @server.tool
    def look(ctx: Context, uri: str) -> str:
        try:
            ctx.read_resource(uri)
        except ResourceNotFound as exc:
            return f"none: {exc.message}"
        except InsufficientScope as exc:
            return f"scope: {exc.scopes}"
        return "some"

    return server


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("tool", ["read", "read_later"])
def test_a_tool_reads_what_its_caller_may_read(tool):
    client = real_client(server=readers(), user=person(), scopes=[])
    assert client.call_tool(tool, {"uri": "shop://sync"}).text == "sync ada"
    assert client.call_tool(tool, {"uri": "shop://async"}).text == "b'async ada'"
    for uri in ("shop://vault", "shop://missing", "nonsense"):
        result = client.call_tool(tool, {"uri": uri}, check=False)
        assert result.is_error
        assert result.text == f"{NOT_FOUND} (URI: {uri})"
    result = client.call_tool(tool, {"uri": "shop://scoped"}, check=False)
    assert (result.is_error, result.text) == (True, "This needs the scope vault.")


@pytest.mark.django_db(transaction=True)
async def test_a_tool_reads_resources_from_an_event_loop():
    from asgiref.sync import sync_to_async

    client = real_client(server=readers(), user=await sync_to_async(person)())
    assert (await client.acall_tool("read_later", {"uri": "shop://sync"})).text == "sync ada"
    assert (await client.acall_tool("read", {"uri": "shop://sync"})).text == "sync ada"
    assert (await client.acall_tool("read", {"uri": "shop://async"})).text == "b'async ada'"


@pytest.mark.django_db(transaction=True)
def test_a_tool_tells_an_anonymous_caller_nothing_of_what_is_hidden():
    client = real_client(server=readers())
    assert client.call_tool("read", {"uri": "shop://sync"}).text == "sync "
    for uri in ("shop://vault", "shop://scoped", "shop://missing"):
        for tool in ("read", "read_later"):
            result = client.call_tool(tool, {"uri": uri}, check=False)
            assert (result.is_error, result.text) == (True, f"{NOT_FOUND} (URI: {uri})")
        assert client.call_tool("look", {"uri": uri}).text == f"none: {NOT_FOUND}"


@pytest.mark.django_db
def test_a_tool_can_catch_that_there_is_nothing():
    client = real_client(server=readers(), user=person(), scopes=[])
    assert client.call_tool("look", {"uri": "shop://vault"}).text == f"none: {NOT_FOUND}"
    assert client.call_tool("look", {"uri": "shop://scoped"}).text == "scope: ('vault',)"
    assert client.call_tool("look", {"uri": "shop://sync"}).text == "some"
