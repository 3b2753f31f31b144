"""`tools/list` and `tools/call`: names, arguments, failures and the members of a listed tool."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied, SuspiciousOperation, ValidationError
from django.http import Http404
from django.test import override_settings
from django.utils.translation import gettext_lazy, override
from pydantic import Field

from mcp_django import Context, Icon, MCPError, ToolError
from mcp_django.auth.permissions import IsStaff
from mcp_django.exceptions import InvalidParams
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import call, open_to_all, real_client
from tests.sites.example.mcp import open_server
from tests.spec import spec


def nothing() -> None:
    """Do nothing."""


def listed(function: Any, **options: Any) -> dict[str, Any]:
    server = open_to_all()
    server.tool("tool", **options)(function)
    (tool,) = real_client(server=server).list_tools()
    return tool


def refusal(client: MCPClient, method: str, params: dict[str, Any]) -> ErrorResponse:
    with pytest.raises(ErrorResponse) as caught:
        client.request(method, params)
    return caught.value


# Listing --------------------------------------------------------------------------------------


@spec("TOOL-2", "TOOL-16")
def test_a_tool_says_no_more_than_its_author_set():
    assert listed(nothing) == {
        "name": "tool",
        "description": "Do nothing.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


@spec("TOOL-16")
@pytest.mark.parametrize(
    ("option", "member"),
    [
        ("read_only", "readOnlyHint"),
        ("destructive", "destructiveHint"),
        ("idempotent", "idempotentHint"),
        ("open_world", "openWorldHint"),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_a_hint_is_published_as_it_was_set(option, member, value):
    assert listed(nothing, **{option: value})["annotations"] == {member: value}


@spec("UIX-1", "UIX-3", "MET-6")
def test_title_icons_and_meta_are_published():
    tool = listed(
        nothing,
        title="A title",
        meta={"com.example/team": {"name": "desk"}},
        icons=[
            Icon("https://x.test/i.png", mime_type="image/png", sizes=("48x48",), theme="dark"),
            Icon("data:image/png;base64,AA=="),
        ],
    )
    assert tool["title"] == "A title"
    assert tool["annotations"] == {"title": "A title"}
    assert tool["_meta"] == {"com.example/team": {"name": "desk"}}
    assert tool["icons"] == [
        {
            "src": "https://x.test/i.png",
            "mimeType": "image/png",
            "sizes": ["48x48"],
            "theme": "dark",
        },
        {"src": "data:image/png;base64,AA=="},
    ]


@spec("UIX-2")
@pytest.mark.parametrize("base", ["", "http://localhost:8000"])
def test_an_icon_without_a_public_address_is_left_out(base):
    with override_settings(MCP_DJANGO={"BASE_URL": base}):
        assert "icons" not in listed(nothing, icons=[Icon("/static/i.png")])


@spec("UIX-2")
@override_settings(MCP_DJANGO={"BASE_URL": "https://shop.test"})
def test_an_icon_of_the_site_gets_an_absolute_address():
    icons = listed(nothing, icons=[Icon("/static/i.png")])["icons"]
    assert icons == [{"src": "https://shop.test/static/i.png"}]


@pytest.mark.parametrize("src", ["http://x.test/i.png", "//x.test/i.png", "javascript:x", ""])
@spec("UIX-2")
def test_an_icon_from_elsewhere_is_refused(src):
    with pytest.raises(ValueError, match="https: or data:"):
        Icon(src)


def test_a_lazy_title_is_translated_for_each_request():
    options = {"title": gettext_lazy("Yes"), "description": gettext_lazy("No")}
    with override("de"):
        german = listed(nothing, **options)
    with override("en"):
        english = listed(nothing, **options)
    assert (german["title"], german["description"]) == ("Ja", "Nein")
    assert (english["title"], english["description"]) == ("Yes", "No")


@spec("TOOL-3")
def test_tools_are_listed_in_the_order_of_their_names():
    server = open_to_all()
    for name in ("b", "a", "C"):
        server.tool(name)(nothing)
    assert [tool["name"] for tool in real_client(server=server).list_tools()] == ["C", "a", "b"]


# Calling --------------------------------------------------------------------------------------


@spec("TOOL-6", "RPC-10")
@pytest.mark.parametrize("name", ["missing", "ECHO", "", "x" * 5000])
def test_an_unknown_tool_is_an_error(name):
    error = refusal(real_client(server=open_server), "tools/call", {"name": name})
    assert error.code == INVALID_PARAMS
    assert error.message == f"No tool named {name[:80]!r} on server 'open'; see tools/list."


@spec("TOOL-7")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": 5},
        {"name": None},
        {"name": "echo", "arguments": []},
        {"name": "echo", "arguments": "x"},
        {"name": "echo", "arguments": 1},
        {"name": "echo", "arguments": False},
    ],
)
def test_parameters_of_the_wrong_shape_are_an_error(params):
    assert refusal(real_client(server=open_server), "tools/call", params).code == INVALID_PARAMS


@spec("TOOL-17", "TOOL-18", "TOOL-5")
@pytest.mark.parametrize(
    "params", [{}, {"arguments": None}, {"arguments": {}}, {"task": {"ttl": 60000}}]
)
def test_absent_arguments_are_none_and_a_task_is_ignored(params):
    server = open_to_all()
    server.tool(nothing)
    result = real_client(server=server).request("tools/call", {"name": "nothing", **params})
    assert result["content"] == []
    assert "isError" not in result
    assert "task" not in result


def bounded(amount: Annotated[int, Field(gt=0)], name: str = "x") -> str:
    return f"{amount}{name}"


@spec("TOOL-8", "TOOL-9", "OUT-9")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"amount": -5}, ["amount", "greater than 0", "-5"]),
        ({"amount": "many"}, ["amount", '"many"']),
        ({}, ["amount"]),
        ({"amount": 1, "colour": "red"}, ['"colour"', "amount, name"]),
        ({"amount": None}, ["amount"]),
        ({"amount": 1, "name": 5}, ["name", "5"]),
    ],
)
def test_arguments_that_do_not_fit_are_told_to_the_model(arguments, words):
    result = call(bounded, **arguments)
    assert result.is_error
    assert result.structured is None
    for word in words:
        assert word in result.text


# Failures -------------------------------------------------------------------------------------


FAILURES: list[tuple[Exception, str]] = [
    (ToolError("Try 'ok'."), "Try 'ok'."),
    (Group.DoesNotExist("No such group."), "No such group."),
    (Http404("No such page."), "No such page."),
    (Http404(), "Not found."),
    (PermissionDenied("Not yours."), "Not yours."),
    (PermissionDenied(), "You may not do this."),
    (ValidationError("Too long."), "Too long."),
    (ValidationError(["One.", "Two."]), "One. Two."),
    (ValidationError({"name": ["Too long."], "n": "Odd."}), "name: Too long.\nn: Odd."),
    (SuspiciousOperation("../../etc"), "The request was refused."),
]


@spec("TOOL-10")
@pytest.mark.parametrize(("exc", "text"), FAILURES)
@pytest.mark.parametrize("is_async", [True, False])
def test_exceptions_of_django_mean_what_they_mean_in_a_view(exc, text, is_async):
    def fail() -> str:
        raise exc

    async def fail_later() -> str:
        raise exc

    result = call(fail_later if is_async else fail)
    assert result.is_error
    assert result.content == [{"type": "text", "text": text}]


@spec("TOOL-10", "ERR-5")
@override_settings(DEBUG=True)
def test_a_bug_is_logged_and_tells_the_client_nothing(caplog):
    def buggy() -> str:
        raise RuntimeError("SELECT secret FROM /etc/passwd")

    result = call(buggy)
    assert result.is_error
    assert result.text == "tool 'tool' failed because of a server error. The error was logged."
    (record,) = [logged for logged in caplog.records if logged.name == "mcp_django"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)


def test_a_protocol_error_raised_on_purpose_stays_one():
    def refuse() -> str:
        raise InvalidParams("Not like this.", data={"hint": 1})

    with pytest.raises(MCPError) as caught:
        call(refuse)
    assert (caught.value.code, caught.value.message, caught.value.data) == (
        INVALID_PARAMS,
        "Not like this.",
        {"hint": 1},
    )


def test_a_resource_that_a_tool_misses_is_told_in_band():
    def look(ctx: Context) -> str:
        return str(ctx.read_resource("shop://missing"))

    result = call(look)
    assert result.is_error
    assert "Resource not found" in result.text
    assert "shop://missing" in result.text


@spec("ERR-3", "RPC-2")
@pytest.mark.parametrize("request_id", [0, 1, -5, 2**70, "", "1", "ä"])
def test_the_id_comes_back_with_its_type(request_id):
    client = real_client(server=open_server)
    for name in ("echo", "missing"):
        message = client._client.message("tools/call", {"name": name, "arguments": {"text": "x"}})
        response = client._client.send({**message, "id": request_id})
        assert response["id"] == request_id
        assert type(response["id"]) is type(request_id)
        assert ("error" in response) != ("result" in response)


# Hidden ---------------------------------------------------------------------------------------


@pytest.mark.django_db
@spec("TOOL-6", "TOOL-11", "TOOL-4")
def test_a_hidden_tool_is_an_unknown_one(django_user_model):
    server = open_to_all()
    server.tool("hidden", permission=IsStaff)(nothing)
    server.tool("shown")(nothing)
    user = django_user_model.objects.create_user("ada")
    client = real_client(server=server, user=user)
    assert [tool["name"] for tool in client.list_tools()] == ["shown"]
    hidden = refusal(client, "tools/call", {"name": "hidden", "arguments": {"odd": 1}})
    unknown = refusal(client, "tools/call", {"name": "hiddem", "arguments": {"odd": 1}})
    assert hidden.code == unknown.code
    assert hidden.message == unknown.message.replace("hiddem", "hidden")
    assert hidden.data == unknown.data
    user.is_staff = True
    assert [tool["name"] for tool in client.list_tools()] == ["hidden", "shown"]
    assert not client.call_tool("hidden").is_error


@spec("RPC-6", "VER-10", "MET-3")
def test_a_result_says_that_it_is_complete_and_who_answered():
    result = real_client(server=open_server).call_tool("echo", {"text": "x"}).raw
    assert result["resultType"] == "complete"
    assert result["_meta"] == {
        "io.modelcontextprotocol/serverInfo": {
            "name": "open",
            "version": open_server.identity()["version"],
        }
    }
