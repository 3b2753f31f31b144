"""Pages that users are sent to: valid URLs, and when the page counts as done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import AnonymousUser, Group, User
from django.test import override_settings
from django.urls import reverse_lazy

from mcp_django import Context, ElicitationDeclined, ElicitURL, MCPServer
from mcp_django.auth.pages import belongs_to
from mcp_django.test import ACCEPT, CANCEL, DECLINE, MCPClient
from tests.components.questions.site import call, messages, serving
from tests.kit.servers import open_to_all, person
from tests.spec import spec

PAGE = "https://example.com/sign"


def sending(url: str, done: Callable[[], bool] | None = None) -> MCPServer:
    """Return a server with a tool that sends the user to a page."""
    server = open_to_all()

    @server.tool
    async def visit(ctx: Context) -> str:
        return repr(await ctx.aelicit_url("Sign here.", url, done=done))

    return server


def address(result: dict[str, Any]) -> str:
    (request,) = result["inputRequests"].values()
    url: str = request["params"]["url"]
    return url


# Where ----------------------------------------------------------------------------------------


@spec("ASK-13")
def test_a_page_is_asked_for_by_its_address():
    (question,) = MCPClient(server=sending(PAGE)).call_tool("visit").questions
    assert question == {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Sign here.", "url": PAGE},
    }


@spec("ASK-13")
@pytest.mark.parametrize("path", ["/sign/7", "/sign/7?x=1#top", "/"])
async def test_a_path_of_the_site_is_completed_by_the_request(ask, path, settings):
    settings.DEBUG = True
    answer = await ask(sending(path), call(name="visit"))
    assert address(answer.response()["result"]) == f"http://testserver{path}"


@spec("ASK-13", "ASK-16")
async def test_a_site_that_is_not_encrypted_sends_nobody_anywhere(ask):
    result = (await ask(sending("/sign"), call(name="visit"))).response()["result"]
    assert result["isError"]
    local = (await ask(sending("/sign"), call(name="visit"), host="localhost")).response()
    assert address(local["result"]) == "http://localhost/sign"


@spec("ASK-13")
@pytest.mark.parametrize("base", ["https://shop.example", "https://shop.example/"])
async def test_a_path_of_the_site_is_completed_by_its_own_address(ask, base, settings):
    settings.MCP_DJANGO = {"BASE_URL": base}
    answer = await ask(sending("/sign"), call(name="visit"))
    assert address(answer.response()["result"]) == "https://shop.example/sign"


async def test_an_address_may_be_a_lazy_one(ask, settings):
    settings.MCP_DJANGO = {"BASE_URL": "https://shop.example"}
    answer = await ask(sending(reverse_lazy("mcp_django_inline:endpoint")), call(name="visit"))
    assert address(answer.response()["result"]) == "https://shop.example/mcp"


@pytest.mark.parametrize("path", ["/sign", "//evil.example/sign", "sign", ""])
def test_without_an_address_of_the_site_a_path_leads_nowhere(path):
    rule = r"is not an absolute URL; write https://…\. Only ctx\.elicit_url"
    with pytest.raises(ValueError, match=rule):
        MCPClient(server=sending(path)).call_tool("visit")


@spec("ASK-13", "ASK-16")
@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://example.com/", "is not encrypted"),
        ("http://localhost.example.com/", "is not encrypted"),
        ("http://127.0.0.1.example.com/", "is not encrypted"),
        ("https://ada@example.com/", "contains credentials"),
        ("https://ada:x@example.com/", "contains credentials"),
        ("https://:@example.com/", "contains credentials"),
        ("https://@example.com/", "contains credentials"),
        ("javascript:alert(1)", "is not an absolute URL"),
        ("data:text/html,x", "is not an absolute URL"),
        ("ftp://example.com/", "is not an absolute URL"),
        ("file:///etc/passwd", "is not an absolute URL"),
        ("mailto:ada@example.com", "is not an absolute URL"),
        ("https://", "is not an absolute URL"),
        ("https:///path", "is not an absolute URL"),
        ("https:example.com", "is not an absolute URL"),
        ("example.com", "is not an absolute URL"),
        (" https://example.com/", "is not an absolute URL"),
        ("https://example.com/a b", "is not an absolute URL"),
        ("https://example.com/\n", "is not an absolute URL"),
        ("https://exa\tmple.com/", "is not an absolute URL"),
        ("https://example.com/\x00", "is not an absolute URL"),
        ("https://example.com/\u202egpj.exe", "is not an absolute URL"),
        ("https://exämple.com/", "is not an absolute URL"),
        ("https://example.com/<script>", "is not an absolute URL"),
        ("https://example.com:99999/", "is not an absolute URL"),
        ("https://example.com:port/", "is not an absolute URL"),
        ("https://[::1/", "is not an absolute URL"),
    ],
)
def test_users_are_sent_to_proper_addresses_only(url, rule):
    with pytest.raises(ValueError, match=rule) as caught:
        ElicitURL("Go.", url)
    assert "x@" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        PAGE,
        "HTTPS://EXAMPLE.COM/",
        "https://example.com:8443/a/b;c?d=e&f=%C3%A9#g",
        "https://xn--exmple-cua.com/",
        "https://[2001:db8::1]:8443/",
        "http://localhost:8000/",
        "http://127.0.0.1/",
        "http://127.0.1.1/",
        "http://[::1]:8000/",
    ],
)
def test_proper_addresses_are_taken_as_they_are(url):
    assert ElicitURL("Go.", url).to_params()["url"] == url


def test_while_developing_a_page_need_not_be_encrypted():
    with override_settings(DEBUG=True):
        assert ElicitURL("Go.", "http://example.com/").url == "http://example.com/"


# When -----------------------------------------------------------------------------------------


@spec("ASK-14", "MRT-12")
def test_to_agree_is_enough_where_nothing_has_to_be_done():
    assert MCPClient(server=sending(PAGE)).call_tool("visit", answers=[ACCEPT]).text == "None"


@spec("ASK-14", "MRT-14")
@pytest.mark.parametrize("answer", [DECLINE, CANCEL])
def test_a_refusal_is_told_apart_and_nothing_more_is_looked_up(answer):
    # Called once, before the question.
    looks = iter([False])

    def visit(ctx: Context) -> str:
        try:
            ctx.elicit_url("Sign here.", PAGE, done=lambda: next(looks))
        except ElicitationDeclined as exc:
            return exc.action
        return "done"

    assert serving(visit).call_tool("tool", answers=[answer]).text == answer.value


@spec("MRT-12")
def test_what_is_not_done_is_asked_again_for_as_long_as_it_takes():
    # The first call is before the question, and each following one after an answer.
    finished = iter([False] * 26 + [True])
    client = MCPClient(server=sending(PAGE, done=lambda: next(finished)))
    assert client.call_tool("visit", answers=[ACCEPT] * 26).text == "None"


@spec("MRT-12")
def test_the_user_is_told_that_it_is_not_done():
    client = MCPClient(server=sending(PAGE, done=lambda: False))
    first, second = client.call_tool("visit"), client.call_tool("visit", answers=[ACCEPT])
    assert messages(first) == ["Sign here."]
    assert messages(second) == [
        "The page is not completed yet. Complete it, then come back and accept.\n\nSign here."
    ]
    assert second.questions[0]["params"]["url"] == PAGE


@spec("MRT-12", "MRT-14")
def test_what_is_undone_meanwhile_is_asked_again_and_may_be_refused_then():
    finished = iter([True, False, False])

    async def visit(ctx: Context) -> str:
        await ctx.aelicit_url("Sign here.", PAGE, done=lambda: next(finished))
        return str(await ctx.aelicit("Sure?", str))

    client = serving(visit)
    assert messages(client.call_tool("tool", answers=[ACCEPT, "yes"]))[0].endswith("Sign here.")
    finished = iter([True, False, False])
    result = client.call_tool("tool", answers=[ACCEPT, "yes", DECLINE], check=False)
    assert result.text == "The user declined to answer."


@spec("MRT-12")
@pytest.mark.django_db(transaction=True)
async def test_whether_it_is_done_may_be_a_question_to_the_database():
    client = MCPClient(server=sending(PAGE, done=Group.objects.filter(name="signed").exists))
    assert (await client.acall_tool("visit", answers=[ACCEPT])).questions
    await Group.objects.acreate(name="signed")
    # No question is left.
    assert (await client.acall_tool("visit")).text == "None"


# Whose ----------------------------------------------------------------------------------------


@spec("ASK-16", "ASK-17", "ASK-19", "MRT-12")
@pytest.mark.django_db(transaction=True)
def test_the_page_knows_whether_its_visitor_is_the_caller():
    server = open_to_all()

    @server.tool(atomic=False)
    def sign(ctx: Context) -> str:
        page = f"https://example.com/sign/{ctx.interaction_id}"
        ctx.elicit_url(
            "Sign here.", page, done=Group.objects.filter(name=ctx.interaction_id).exists
        )
        return ctx.interaction_id

    ada, bob = person("ada"), person("bob")
    client = MCPClient(server=server, user=ada)
    result = client.call_tool("sign", answers=[ACCEPT]).raw
    url = address(result)
    interaction_id = url.rpartition("/")[2]
    assert belongs_to(interaction_id, ada)
    assert not belongs_to(interaction_id, bob)
    assert not belongs_to(interaction_id, AnonymousUser())
    assert not {"ada", str(ada.pk)} & set(url.split("/"))
    Group.objects.create(name=interaction_id)
    key = next(iter(result["inputRequests"]))
    again = client.request(
        "tools/call",
        {
            "name": "sign",
            "inputResponses": {key: {"action": "accept"}},
            "requestState": result["requestState"],
        },
    )
    assert again["content"][0]["text"] == interaction_id


@spec("ASK-17")
async def test_the_address_stays_the_same_over_the_rounds():
    server = open_to_all()

    @server.tool
    async def sign(ctx: Context) -> str:
        name = await ctx.aelicit("Name?", str)
        await ctx.aelicit_url(f"Sign, {name}.", f"https://example.com/{ctx.interaction_id}")
        return ctx.interaction_id

    client = MCPClient(server=server, user=User(pk=1, username="ada"))
    result = await client.acall_tool("sign", answers=["Ada", ACCEPT])
    other = await sync_to_async(client.call_tool)("sign", answers=["Ada", ACCEPT])
    assert len({result.text, other.text}) == 2
