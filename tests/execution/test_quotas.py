"""Rate limits of servers and components: what counts as a use, for whom, and for how long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from mcp_django import Context, MCPServer
from mcp_django.auth import limits
from mcp_django.auth.permissions import AllowAny, IsStaff
from mcp_django.auth.principal import principal_for
from mcp_django.exceptions import MCPError, ResourceNotFound, TooManyRequests
from mcp_django.execution import quotas
from mcp_django.protocol.errors import INVALID_PARAMS, RATE_LIMITED
from mcp_django.protocol.revisions import LATEST
from mcp_django.test import ACCEPT, ErrorResponse, MCPClient
from mcp_django.transports.memory import LocalClient
from tests.kit.rings import examples
from tests.kit.servers import open_to_all, person
from tests.spec import spec

START = 1_800_000_000.0  # a multiple of an hour


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock at the beginning of an hour, which a test can move."""
    clock = SimpleNamespace(now=START)
    fake = SimpleNamespace(time=lambda: clock.now, monotonic=lambda: 0.0)
    monkeypatch.setattr(limits, "time", fake)
    return clock


def with_tool(*, server: MCPServer | None = None, **options: Any) -> MCPServer:
    server = server or open_to_all()

    @server.tool(**options)
    def add(a: int = 1) -> int:
        return a

    @server.tool
    def other() -> int:
        return 0

    return server


def is_refused(server: MCPServer, user: Any, client: str) -> bool:
    """Return whether a client of a user has exceeded a limit."""
    key = f"{principal_for(user).key}@{client}"
    caller = principal_for(user, key=key, client_id=client)
    speaking = LocalClient(server, caller, revision=LATEST, client_info={"name": client})
    answer = speaking.request("tools/call", {"name": "add"})
    return bool(answer.get("error", {}).get("code") == RATE_LIMITED)


def is_limited(client: MCPClient, method: str = "tools/call", **params: Any) -> bool:
    """Return whether a use was rejected because of a rate limit."""
    params = params or {"name": "add", "arguments": {}}
    try:
        client.request(method, params)
    except ErrorResponse as exc:
        if exc.code != RATE_LIMITED:
            raise
        return True
    return False


def refusal(client: MCPClient, name: str = "add") -> ErrorResponse:
    with pytest.raises(ErrorResponse) as caught:
        client.request("tools/call", {"name": name, "arguments": {}})
    return caught.value


# What is said ---------------------------------------------------------------------------------


@spec("TOOL-11")
def test_one_call_too_many_says_when_to_come_again(clock):
    client = MCPClient(server=with_tool(rate="2/m"))
    clock.now += 15
    assert [is_limited(client) for _ in range(3)] == [False, False, True]
    exc = refusal(client)
    assert (exc.code, exc.data) == (RATE_LIMITED, {"retryAfter": 45})
    assert exc.message == "The limit of 2/m for tool 'add' is reached; call again in 45 seconds."
    clock.now += 45
    assert not is_limited(client)


def test_a_limit_of_the_whole_server_names_the_server():
    client = MCPClient(server=with_tool(server=open_to_all(rate="1/h")))
    assert not is_limited(client)
    assert refusal(client, "other").message == (
        "The limit of 1/h on the server 'inline' is reached; call again in 3600 seconds."
    )


def test_whoever_is_over_two_limits_waits_for_the_later():
    client = MCPClient(server=with_tool(rate=["1/m", "1/h"]))
    assert not is_limited(client)
    assert refusal(client).data == {"retryAfter": 3600}


def test_a_site_may_have_the_model_told_instead(settings):
    settings.MCP_DJANGO = {"THROTTLE_AS": "result", "RATE": "1/h"}
    server = with_tool()
    server.prompt(name="greet")(lambda: "Hello")
    client = MCPClient(server=server)
    assert not client.call_tool("add", {}).is_error
    result = client.call_tool("add", {}, check=False)
    assert result.is_error
    assert result.text == (
        "The limit of 1/h on the server 'inline' is reached; call again in 3600 seconds."
    )
    # Other methods have no result that could carry this text, so they return an error.
    assert is_limited(client, "prompts/get", name="greet")


# What is counted ------------------------------------------------------------------------------


def test_a_call_that_is_refused_uses_nothing_up(clock):
    client = MCPClient(server=with_tool(rate=["1/m", "2/h"]))
    assert not is_limited(client)
    assert all(is_limited(client) for _ in range(5))
    clock.now += 60
    assert not is_limited(client)
    clock.now += 60
    assert is_limited(client)


def test_a_loser_of_a_race_gives_back_what_was_counted(monkeypatch):
    client = MCPClient(server=with_tool(rate=["1/m", "9/h"]))
    assert not is_limited(client)
    # Another process takes the last use between the check and the count.
    monkeypatch.setattr(limits, "check_limit", lambda *args, **kwargs: 0)
    assert all(is_limited(client) for _ in range(20))
    monkeypatch.undo()
    counts = sorted(value for key, value in held().items() if ":rate:" in key)
    assert counts == [1, 1]


def held() -> dict[str, int]:
    """Return the contents of the cache, whose expiry does not follow the clock of the test."""
    raw: Any = cache
    return {key: cache.get(key.split(":", 2)[2]) for key in raw._cache}


def test_wrong_arguments_are_a_use_as_well():
    client = MCPClient(server=with_tool(rate="1/m"))
    assert client.call_tool("add", {"a": "x"}, check=False).is_error
    assert is_limited(client)


def test_what_is_hidden_is_not_counted(db):
    server = with_tool(rate="1/h", permission=IsStaff)
    nobody, staff = person("nobody"), person("staff", is_staff=True)
    for _ in range(3):
        with pytest.raises(ErrorResponse) as caught:
            MCPClient(server=server, user=nobody).request("tools/call", {"name": "add"})
        assert caught.value.code == INVALID_PARAMS
    client = MCPClient(server=server, user=staff)
    assert [is_limited(client) for _ in range(2)] == [False, True]


def test_lists_are_not_counted():
    client = MCPClient(server=with_tool(server=open_to_all(rate="1/h")))
    for method in ("tools/list", "server/discover", "tools/list"):
        client.request(method)
    assert not is_limited(client)


def everything(**options: Any) -> MCPServer:
    server = open_to_all(**options)

    @server.resource("shop://about", rate="1/h")
    def about() -> str:
        return "About."

    @server.resource("shop://orders/{number}", rate="1/h")
    def order(number: int) -> str:
        return str(number)

    @server.prompt(rate="1/h")
    def greet(name: str) -> str:
        return name

    @server.completion(greet, "name")
    def names(value: str) -> list[str]:
        return [f"{value}!"]

    @server.tool
    def through(ctx: Context, uri: str) -> str:
        return str(ctx.read_resource(uri)[0].content)

    return server


COMPLETION = {
    "ref": {"type": "ref/prompt", "name": "greet"},
    "argument": {"name": "name", "value": "A"},
}


@spec("CMP-4", "CMP-5")
def test_suggestions_have_a_count_of_their_own():
    """Typing causes many completions, which must not use up the limit of the prompt."""
    client = MCPClient(server=everything())
    uses = [is_limited(client, "completion/complete", **COMPLETION) for _ in range(3)]
    assert uses == [False, True, True]
    prompt = {"name": "greet", "arguments": {"name": "Ada"}}
    assert [is_limited(client, "prompts/get", **prompt) for _ in range(2)] == [False, True]


@pytest.mark.parametrize("uri", ["shop://about", "shop://orders/7"])
def test_a_resource_that_is_read_is_counted(uri):
    client = MCPClient(server=everything())
    assert [is_limited(client, "resources/read", uri=uri) for _ in range(2)] == [False, True]


def test_a_template_has_one_count_for_all_that_it_makes():
    client = MCPClient(server=everything())
    read = [is_limited(client, "resources/read", uri=f"shop://orders/{n}") for n in range(3)]
    assert read == [False, True, True]


@spec("CMP-4", "CMP-5")
def test_suggestions_for_what_is_not_there_or_hidden_are_refused_alike(db):
    server = everything()
    server.prompt(name="hidden", permission=IsStaff)(lambda name: name)
    client = MCPClient(server=server, user=person())
    for name in ("hidden", "nothing"):
        ref = {"type": "ref/prompt", "name": name}
        with pytest.raises(ErrorResponse, match="to complete for") as caught:
            client.request("completion/complete", {**COMPLETION, "ref": ref})
        assert caught.value.code == INVALID_PARAMS


def test_what_a_tool_reads_for_its_caller_belongs_to_the_call():
    client = MCPClient(server=everything())
    for _ in range(3):
        assert client.call_tool("through", {"uri": "shop://about"}).text == "About."
    assert not is_limited(client, "resources/read", uri="shop://about")


def test_a_prompt_with_wrong_arguments_is_a_use_and_one_that_is_not_there_is_none():
    client = MCPClient(server=everything())
    with pytest.raises(ErrorResponse) as unknown:
        client.request("prompts/get", {"name": "nothing"})
    with pytest.raises(ErrorResponse) as wrong:
        client.request("prompts/get", {"name": "greet"})
    assert unknown.value.code == wrong.value.code == INVALID_PARAMS
    assert is_limited(client, "prompts/get", name="greet", arguments={"name": "Ada"})
    with pytest.raises(ErrorResponse) as gone:
        client.request("resources/read", {"uri": "shop://orders/x"})
    assert gone.value.code != RATE_LIMITED


# For whom -------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("rate", "free"),
    [
        ("1/h", {"another user": True, "another client": False}),
        ("client: 1/h", {"another user": True, "another client": True}),
        ("all: 1/h", {"another user": False, "another client": False}),
    ],
)
def test_a_rate_says_who_shares_it(rate, free):
    server = with_tool(rate=rate)
    ada, grace = person("ada"), person("grace")
    assert not is_refused(server, ada, "desk")
    assert is_refused(server, ada, "desk")
    assert is_refused(server, grace, "desk") is not free["another user"]
    assert is_refused(server, ada, "phone") is not free["another client"]


def test_servers_and_components_are_counted_apart(settings):
    settings.MCP_DJANGO = {"RATE": "1/h"}
    first = with_tool()
    second = with_tool(server=MCPServer("second", permission=AllowAny))
    assert [is_limited(MCPClient(server=server)) for server in (first, second)] == [False, False]
    assert [is_limited(MCPClient(server=server)) for server in (first, second)] == [True, True]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_no_rate_limits_what_a_client_asks_to_find_its_way(version, settings):
    # A single rejected discovery or list permanently moves the Python SDK to an older revision.
    settings.MCP_DJANGO = {"RATE": "1/h"}
    server = with_tool(
        server=MCPServer("strict", permission=AllowAny, rate=["1/h", "0/d"]), rate="1/h"
    )
    server.resource("x://a", rate="0/d")(lambda: "")
    server.prompt("greet", rate="0/d")(lambda: "")
    client = MCPClient(server=server, protocol_version=version)
    assert is_limited(client)
    lists = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
    for method in [*lists, *(["server/discover"] if version == "2026-07-28" else ["ping"])]:
        for _ in range(3):
            client.request(method)


def test_of_two_limits_over_one_period_the_lower_holds():
    client = MCPClient(server=with_tool(rate=["5/h", "2/h", "3/h"]))
    assert [is_limited(client) for _ in range(3)] == [False, False, True]


def test_nothing_may_be_used_at_all_where_the_rate_is_nothing():
    assert is_limited(MCPClient(server=with_tool(rate="0/d")))


# Rounds ---------------------------------------------------------------------------------------


def asking(rate: str) -> MCPServer:
    server = open_to_all()

    @server.tool(rate=rate)
    def ask(ctx: Context, left: int = 1) -> str:
        for n in range(left):
            ctx.elicit(f"Go on with {n}?")
        return "done"

    return server


def begun(client: MCPClient, left: int = 1) -> dict[str, Any]:
    params = {"name": "ask", "arguments": {"left": left}}
    result = client.request("tools/call", params)
    (key,) = result["inputRequests"]
    return {
        **params,
        "requestState": result["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {}}},
    }


@pytest.mark.django_db
def test_the_rounds_of_one_call_are_one_use():
    client = MCPClient(server=asking("1/h"), answers=[ACCEPT] * 4)
    assert client.call_tool("ask", {"left": 4}).text == "done"
    assert is_limited(client, name="ask", arguments={})


@pytest.mark.django_db
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_the_questions_of_a_session_are_no_calls(version):
    server = asking("1/h")
    client = MCPClient(server=server, protocol_version=version, answers=[ACCEPT] * 4)
    assert client.call_tool("ask", {"left": 4}).text == "done"
    assert is_limited(client, name="ask", arguments={})


@pytest.mark.django_db
def test_a_state_that_is_sent_again_and_again_becomes_calls(monkeypatch):
    monkeypatch.setattr(quotas, "MAX_ROUNDS", 3)
    client = MCPClient(server=asking("2/h"))
    retry = begun(client)
    again = [is_limited(client, **retry) for _ in range(6)]
    assert again == [False, False, False, False, True, True]


@pytest.mark.django_db
def test_a_state_that_is_none_begins_a_call_of_its_own():
    client = MCPClient(server=asking("1/h"))
    retry = {**begun(client), "requestState": "made-up"}
    with pytest.raises(ErrorResponse) as caught:
        client.request("tools/call", retry)
    assert caught.value.code == INVALID_PARAMS


# The cache ------------------------------------------------------------------------------------


def test_a_cache_that_is_down_limits_nothing(monkeypatch):
    def down(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError

    for method in ("get", "add", "incr", "decr"):
        monkeypatch.setattr(type(cache._connections[cache._alias]), method, down)
    monkeypatch.setattr(limits, "_logged_at", {})
    client = MCPClient(server=with_tool(rate="1/h"))
    assert [is_limited(client) for _ in range(3)] == [False] * 3


def test_where_there_are_no_rates_the_cache_is_not_asked(monkeypatch):
    monkeypatch.setattr(limits, "check_limit", None)
    monkeypatch.setattr(limits, "count_event", None)
    client = MCPClient(server=with_tool())
    assert [is_limited(client) for _ in range(3)] == [False] * 3


# Windows --------------------------------------------------------------------------------------


@hypothesis_settings(
    max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    count=st.integers(1, 4),
    period=st.sampled_from([1, 7, 60, 3600]),
    steps=st.lists(st.integers(0, 90), max_size=25),
)
def test_no_window_lets_more_through_and_none_less(clock, count, period, steps):
    cache.clear()
    clock.now = START
    client = MCPClient(server=with_tool(rate=f"{count}/{period}s"))
    passed: dict[int, int] = {}
    for step in steps:
        clock.now += step
        window = int(clock.now // period)
        limited = is_limited(client)
        assert limited is (passed.get(window, 0) >= count)
        passed[window] = passed.get(window, 0) + (not limited)


def test_the_exception_says_how_long_to_wait():
    exc = TooManyRequests("Too often.", retry_after=7)
    assert isinstance(exc, MCPError)
    assert not isinstance(exc, ResourceNotFound)
    assert (exc.retry_after, exc.data, exc.http_status) == (7, {"retryAfter": 7}, 429)
