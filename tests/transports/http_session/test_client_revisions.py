"""`MCPClient` at every revision: the same tests for the same tools."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group

from mcp_django.exceptions import MCPError
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.test import ACCEPT, CANCEL, DECLINE, CallResult, MCPClient
from tests.spec import spec
from tests.transports.http_session.handshakes import A, B, C, D
from tests.transports.http_session.parlor import paid, parlor

pytestmark = pytest.mark.django_db

EVERY = list(REVISIONS)
E = "2026-07-28"
WITH_FORMS = [version for version in EVERY if version not in (A, B)]
WITH_PAGES = [version for version in WITH_FORMS if version != C]
WAYS = ["sync", "async"]


@pytest.fixture(autouse=True)
def _bills():
    yield
    paid.clear()


def client(version: str, **options: Any) -> MCPClient:
    return MCPClient(server=parlor, protocol_version=version, **options)


async def called(
    way: str, version: str, tool: str, answers: Any = (), **arguments: Any
) -> CallResult:
    """Call a tool in one of two ways, sync or async, and return the result."""
    mine = client(version, allow_early_writes=True)
    if way == "async":
        return await mine.acall_tool(tool, arguments, answers=answers, check=False)
    from asgiref.sync import sync_to_async

    return await sync_to_async(mine.call_tool)(tool, arguments, answers=answers, check=False)


@pytest.mark.parametrize("version", EVERY)
def test_everything_that_needs_no_answer_is_the_same(version):
    mine = client(version)
    assert "count" in [tool["name"] for tool in mine.list_tools()]
    assert "parlor://table" in [resource["uri"] for resource in mine.list_resources()]
    assert len(mine.list_resource_templates()) == 3
    assert [prompt["name"] for prompt in mine.list_prompts()] == ["toast"]
    assert mine.read_resource("parlor://table")[0]["text"] == "cups"
    result = mine.call_tool("count", {"n": 2})
    assert result.text == "counted to 2"
    assert [report["progress"] for report in result.progress] == [1, 2]
    with pytest.raises(MCPError) as caught:
        mine.read_resource("parlor://nothing")
    assert caught.value.code == (-32602 if REVISIONS[version].stateless else -32002)


@spec("PNG-1", "PNG-3")
@pytest.mark.parametrize("version", EVERY)
def test_a_method_is_there_in_its_revisions_alone(version):
    mine = client(version)
    theirs = {True: "server/discover", False: "ping"}
    is_stateless = REVISIONS[version].stateless
    assert mine.request(theirs[is_stateless]) is not None
    with pytest.raises(MCPError) as caught:
        mine.request(theirs[not is_stateless])
    assert caught.value.code == -32601


@spec("MRT-13", "ASK-14")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", WITH_FORMS)
@pytest.mark.django_db(transaction=True)
async def test_a_form_is_answered(version, way):
    assert (await called(way, version, "name", ["Ada"])).text == "Hello Ada."
    assert (await called(way, version, "two", [20, 22])).text == "42"
    assert (await called(way, version, "order", [{"cups": 3}])).text.startswith("3 small green tea")
    for reaction, expected in ((ACCEPT, "accept"), (DECLINE, "decline"), (CANCEL, "cancel")):
        assert (await called(way, version, "consent", [reaction])).text == expected
    assert (await called(way, version, "name_later", ["crew"])).text == "0 groups, then 1"


@spec("ASK-1", "ASK-11")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", [A, B])
@pytest.mark.django_db(transaction=True)
async def test_who_has_no_forms_is_not_asked(version, way):
    result = await called(way, version, "name")
    assert result.is_error
    assert "elicitation" in result.text


@spec("ASK-6", "ASK-7", "ASK-10")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", EVERY)
@pytest.mark.django_db(transaction=True)
async def test_models_and_folders_are_asked_at_every_revision(version, way):
    assert (await called(way, version, "think", ["hi"])).text == "assistant test endTurn: hi"
    assert (await called(way, version, "places", [["file:///home"]])).text == "=file:///home"


@spec("ASK-13")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", WITH_PAGES)
@pytest.mark.django_db(transaction=True)
async def test_a_page_is_visited(version, way):
    paid.add("7")
    assert (await called(way, version, "pay", bill="7")).text == "paid 7"
    assert (await called(way, version, "pay_twice", [ACCEPT, ACCEPT])).text == "paid twice"


@pytest.mark.parametrize("version", WITH_FORMS)
def test_a_call_without_answers_shows_its_questions(version):
    (question,) = client(version).call_tool("name").questions
    assert question["params"]["message"] == "Your name?"


@pytest.mark.parametrize("version", WITH_FORMS)
def test_answers_may_be_given_once_for_all_calls(version):
    mine = client(version, answers=["Ada"])
    assert [mine.call_tool("name").text for _ in range(2)] == ["Hello Ada."] * 2
    assert mine.call_tool("name", answers=["Ben"]).text == "Hello Ben."


@pytest.mark.parametrize("version", WITH_FORMS)
def test_too_many_and_too_few_answers_are_a_mistake(version):
    with pytest.raises(AssertionError, match="did not ask for the answers"):
        client(version).call_tool("name", answers=["Ada", "Ben"])
    with pytest.raises(AssertionError, match="answers are left"):
        client(version).call_tool("everything", answers=["tea"])


@pytest.mark.parametrize("version", WITH_FORMS)
def test_a_write_before_the_question_is_a_mistake(version):
    with pytest.raises(AssertionError, match="keep_name"):
        client(version).call_tool("keep_name", answers=["after"])
    mine = client(version, allow_early_writes=True)
    mine.call_tool("keep_name", answers=["after"])
    assert set(Group.objects.values_list("name", flat=True)) >= {"before", "after"}


@pytest.mark.parametrize("version", WITH_FORMS)
def test_prompts_and_resources_are_answered(version):
    mine = client(version)
    (message,) = mine.get_prompt("toast", answers=["Ada"])
    assert message["content"]["text"] == "To Ada!"
    assert mine.read_resource("parlor://guests/ada", answers=[7])[0]["text"] == "ada 7"


@pytest.mark.parametrize("unknown", ["", "2099-01-01", "latest", "2025-11"])
def test_an_unknown_revision_names_the_known_ones(unknown):
    with pytest.raises(ValueError, match=f"{unknown!r}.*{', '.join(EVERY)}"):
        client(unknown)


@spec("VER-18")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("version", [A, B, C, D])
@pytest.mark.parametrize("transport", ["memory", "http", "stdio"])
def test_where_there_is_no_in_band_error_a_lacking_capability_is_a_wrong_parameter(
    transport, version
):
    with client(version, capabilities={}, transport=transport) as mine:
        for ask in (mine.get_prompt, mine.read_resource):
            with pytest.raises(MCPError) as caught:
                ask("toast" if ask == mine.get_prompt else "parlor://guests/x")
            assert caught.value.code == -32602
            assert "needs a client that declares elicitation" in caught.value.message


@spec("ASK-5", "VER-17")
@pytest.mark.parametrize("version", EVERY)
def test_a_malformed_answer_is_called_by_the_name_it_has_there(version):
    mine = client(version)
    with pytest.raises(MCPError) as caught:
        mine.call_tool("places", answers=[{"roots": 5}])
    word = "params.inputResponses" if REVISIONS[version].stateless else "result"
    assert caught.value.message.startswith(f"{word}: not a valid answer to roots/list")


@spec("VER-17", "ASK-4")
@pytest.mark.parametrize("version", [C, D])
def test_members_of_the_stateless_retry_mean_nothing_in_a_session(version):
    accepted = {"action": "accept", "content": {"value": "Eve"}}
    questions = client(version).call_tool("name").questions
    mine = client(version)
    retry = {"inputResponses": {"elicitation_0": accepted}, "requestState": "nonsense"}
    result = mine.request("tools/call", {"name": "name", "arguments": {}, **retry})
    assert [question["params"]["message"] for question in questions] == ["Your name?"]
    (again,) = result["inputRequests"].values()
    assert again["params"]["message"] == "Your name?"


@spec("LOG-2")
@pytest.mark.parametrize("version", [A, B, C, D])
def test_a_session_keeps_its_level(version):
    mine = client(version)
    # By default, the test client gets every level.
    assert len(mine.call_tool("levels").logs) == 4
    assert mine.request("logging/setLevel", {"level": "error"}) == {}
    assert [record["level"] for record in mine.call_tool("levels").logs] == ["error"]


@spec("SUB-1")
@pytest.mark.parametrize("version", [A, B, C, D])
def test_a_session_subscribes(version):
    mine = client(version)
    for method in ("resources/subscribe", "resources/unsubscribe"):
        assert mine.request(method, {"uri": "parlor://table"}) == {}


@spec("ASK-1", "ASK-5", "MRT-3")
@pytest.mark.parametrize(
    ("tool", "capability"),
    [("name", "elicitation"), ("think", "sampling"), ("places", "roots"), ("use_tools", "tools")],
)
@pytest.mark.parametrize("version", EVERY)
def test_nobody_is_asked_for_what_was_not_declared(version, tool, capability):
    mine = client(version, capabilities={})
    if not REVISIONS[version].stateless:
        result = mine.call_tool(tool, check=False)
        assert result.is_error
        assert capability in result.text
        return
    with pytest.raises(MCPError) as caught:
        mine.call_tool(tool)
    assert caught.value.code in (-32021, -32003)
    assert capability in str(caught.value.data)
