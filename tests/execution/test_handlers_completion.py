"""`completion/complete`: suggestions from what the caller may see."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.utils.safestring import mark_safe

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import IsStaff
from mcp_django.protocol.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import open_to_all, person
from tests.spec import spec


@pytest.fixture
def server():
    server = open_to_all()

    @server.prompt
    def briefing(topic: str, place: str = "", other: str = "") -> str:
        return topic

    @server.resource("shop://groups/{name}")
    def group(name: str) -> str:
        return name

    @server.completion(briefing, "topic")
    def topics(value: str, ctx: Context, place: str = "") -> list[str]:
        return [f"{value}-{place}-{ctx.server.name}"]

    @server.completion("briefing", "place")
    async def places(value: str) -> list[str]:
        return [f"{value}{n}" for n in range(int(value or 0))]

    @server.completion("shop://groups/{name}", "name")
    def names(value: str) -> QuerySet[Group, str]:
        return (
            Group.objects.filter(name__startswith=value)
            .order_by("name")
            .values_list("name", flat=True)
        )

    return server


def ask(server: MCPServer, user: Any = None, **params: Any) -> dict[str, Any]:
    full = {
        "ref": {"type": "ref/prompt", "name": "briefing"},
        "argument": {"name": "place", "value": "3"},
        **params,
    }
    result = MCPClient(server=server, user=user).request("completion/complete", full)
    return dict(result["completion"])


def refusal(server: MCPServer, user: Any = None, **params: Any) -> ErrorResponse:
    with pytest.raises(ErrorResponse) as caught:
        ask(server, user, **params)
    return caught.value


@spec("CMP-2", "CMP-3")
def test_values_depend_on_what_was_typed_and_chosen(server):
    client = MCPClient(server=server)
    assert client.complete("briefing", "place", "3") == ["30", "31", "32"]
    assert client.complete("briefing", "topic", "a") == ["a--inline"]
    chosen = {"place": "here", "unknown": "x"}
    assert client.complete("briefing", "topic", "a", context=chosen) == ["a-here-inline"]
    assert ask(server, context={"arguments": None})["values"] == ["30", "31", "32"]


async def test_completion_has_an_async_twin(server):
    client = MCPClient(server=server)
    assert await client.acomplete("briefing", "place", "1") == ["10"]
    assert await client.acomplete("briefing", "topic", "a") == ["a--inline"]


@spec("CMP-2", "CMP-6")
@pytest.mark.parametrize("count", [0, 99, 100, 101, 1000])
def test_at_most_a_hundred_values_are_sent(server, count):
    completion = ask(server, argument={"name": "place", "value": str(count)})
    assert len(completion["values"]) == min(count, 100)
    assert completion.get("hasMore", False) is (count > 100)


@pytest.mark.django_db
@spec("CMP-2")
def test_a_queryset_is_read_no_further_than_needed(server, django_assert_num_queries):
    Group.objects.bulk_create(Group(name=f"g{n:03}") for n in range(150))
    ref = {"type": "ref/resource", "uri": "shop://groups/{name}"}
    with django_assert_num_queries(1) as queries:
        completion = ask(server, ref=ref, argument={"name": "name", "value": "g"})
    assert completion["values"] == [f"g{n:03}" for n in range(100)]
    assert completion["hasMore"] is True
    assert "LIMIT 101" in queries.captured_queries[0]["sql"]


@pytest.mark.django_db
@spec("CMP-2")
def test_a_template_may_be_named_by_a_uri_it_matches(server):
    Group.objects.create(name="blue")
    ref = {"type": "ref/resource", "uri": "shop://groups/x"}
    assert ask(server, ref=ref, argument={"name": "name", "value": "b"})["values"] == ["blue"]


@spec("CMP-6")
def test_an_argument_without_completer_has_no_suggestions(server):
    assert ask(server, argument={"name": "other", "value": "x"}) == {"values": []}


@spec("CMP-4", "CMP-5")
@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"argument": {"name": "missing", "value": ""}}, "'missing'; it has topic, place, other."),
        ({"argument": {"name": "place"}}, "value"),
        ({"argument": {"name": "place", "value": 5}}, "value"),
        ({"argument": {}}, "argument"),
        ({"argument": None}, "argument"),
        ({"ref": {"type": "ref/prompt", "name": "missing"}}, "'missing'"),
        ({"ref": {"type": "ref/resource", "uri": "shop://missing"}}, "'shop://missing'"),
        ({"ref": {"type": "ref/prompt"}}, "params.ref"),
        ({"ref": {"type": "ref/resource", "name": "briefing"}}, "params.ref"),
        ({"ref": {"type": "ref/tool", "name": "briefing"}}, "params.ref"),
        ({"ref": "briefing"}, "ref"),
        ({"context": {"arguments": {"place": 5}}}, "context"),
        ({"context": "x"}, "context"),
    ],
)
def test_what_does_not_fit_is_an_error(server, params, word):
    error = refusal(server, **params)
    assert error.code == INVALID_PARAMS
    assert word in error.message


@spec("CMP-1")
def test_without_a_completer_there_is_no_such_method():
    server = open_to_all()
    server.prompt("briefing")(lambda place="": "x")
    assert "completions" not in MCPClient(server=server).discover()["capabilities"]
    assert refusal(server).code == METHOD_NOT_FOUND


def test_the_capability_is_declared_with_a_completer(server):
    assert MCPClient(server=server).discover()["capabilities"]["completions"] == {}


@pytest.mark.django_db
@spec("CMP-5")
def test_completion_tells_nothing_of_what_is_hidden():
    server = open_to_all()
    ran: list[str] = []
    server.prompt("hidden", permission=IsStaff)(lambda place="": "x")
    server.resource("shop://hidden/{place}", permission=IsStaff)(lambda place: "x")
    for ref in ("hidden", "shop://hidden/{place}"):
        server.completion(ref, "place")(lambda value: ran.append(value) or ["gold"])
    user = person()
    for kind, member, hidden, unknown in (
        ("ref/prompt", "name", "hidden", "hiddem"),
        ("ref/resource", "uri", "shop://hidden/{place}", "shop://hiddem/{place}"),
        ("ref/resource", "uri", "shop://hidden/x", "shop://hiddem/x"),
    ):
        first = refusal(server, user, ref={"type": kind, member: hidden})
        second = refusal(server, user, ref={"type": kind, member: unknown})
        assert (first.code, first.data) == (second.code, second.data)
        assert first.message == second.message.replace("hiddem", "hidden")
    assert ran == []
    user.is_staff = True
    assert ask(server, user, ref={"type": "ref/prompt", "name": "hidden"})["values"] == ["gold"]


def test_a_completer_that_fails_suggests_nothing(caplog):
    server = open_to_all()
    server.prompt("briefing")(lambda place="", other="": "x")

    @server.completion("briefing", "place")
    def fail(value: str) -> list[str]:
        raise RuntimeError("secret")

    @server.completion("briefing", "other")
    def deny(value: str) -> list[str]:
        raise PermissionDenied

    assert ask(server) == {"values": []}
    assert "secret" in caplog.text
    caplog.clear()
    assert ask(server, argument={"name": "other", "value": ""}) == {"values": []}
    assert caplog.text == ""


def test_values_are_sent_as_text():
    server = open_to_all()
    server.prompt("briefing")(lambda place="": "x")
    server.completion("briefing", "place")(lambda value: (mark_safe("<b>"), 5))
    assert ask(server) == {"values": ["<b>", "5"]}
