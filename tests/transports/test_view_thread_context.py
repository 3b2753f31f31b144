"""Where middleware keeps the tenant in its thread, functions find it there, or do not run.

`tests/sites/tenants` does the same with real packages, databases and servers.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.routing import URLRouter
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application as get_django_application
from django.core.management import CommandError, call_command
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import get_resolver, include, path, re_path, reverse

from mcp_django import Context, MCPServer, ToolError, tenants
from mcp_django.asgi import get_asgi_application
from mcp_django.auth.permissions import AllowAny, BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.models import AccessToken, Session
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES
from mcp_django.protocol.errors import TASKS
from mcp_django.signals import call_finished
from mcp_django.transports.consumer import MCPConsumer
from tests.kit.drivers import Answer, connect, message, send
from tests.transports.http_session.handshakes import INITIALIZED, call, initialize, request
from tests.transports.mounts import in_thread, wsgi

HERE = "tests.transports.test_view_thread_context"
MOUNTS = ("lane", "view", "wsgi")
TENANTS = ("alpha", "beta")
CALLERS = 24
server = MCPServer("tenants", permission=AllowAny, auth=["tokens"])


class IsAlpha(BasePermission):
    """Lets callers of one tenant connect."""

    def has_permission(self, principal: Principal) -> bool:
        return find_tenant() == "alpha"


guarded = MCPServer("guarded_tenants", permission=IsAlpha, auth=["tokens"])
urlpatterns = [
    path("", include([path("mcp", server.urls)])),
    path("", include([path("other/mcp", server.urls)])),
    path("", include([path("guarded/mcp", guarded.urls)])),
]

_thread = threading.local()


class Tenancy:
    """Keeps the tenant in the thread, as many packages do."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, http_request: HttpRequest) -> HttpResponseBase:
        _thread.tenant = http_request.headers.get("x-tenant", "none")
        try:
            return self.get_response(http_request)
        finally:
            del _thread.tenant


class Breaking:
    """Raises once the function has run."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, http_request: HttpRequest) -> HttpResponseBase:
        self.get_response(http_request)
        raise RuntimeError("after the function")


def find_tenant() -> str:
    return getattr(_thread, "tenant", "none")


@server.tool
async def asking(ctx: Context) -> str:
    """Ask before it names the tenant."""
    await ctx.aelicit("Sure?")
    return find_tenant()


@server.tool(timeout=0.1)
def late() -> str:
    """Name the tenant too late."""
    assert waiting.answered.wait(10)
    return find_tenant()


@guarded.tool
@server.tool
def sync_tenant() -> str:
    """Name the tenant."""
    return find_tenant()


@server.tool
async def async_tenant(ctx: Context) -> str:
    """Name the tenant several times."""
    names = set()
    for _ in range(3):
        await asyncio.sleep(0)
        names.add(await sync_to_async(find_tenant)())
        names.update(await asyncio.gather(*[sync_to_async(find_tenant)() for _ in range(2)]))
        ctx.report_progress(1)
    return " ".join(sorted(names))


@server.tool
async def tenant_in_body() -> str:
    """Name the tenant where a manager or a router is asked: in the body."""
    names = {find_tenant()}
    for _ in range(3):
        await asyncio.sleep(0)
        names.add(find_tenant())
        # As a receiver of a signal does that sends to a channel layer.
        names.add(await sync_to_async(async_to_sync(sync_to_async(find_tenant)))())
        names.add(await asyncio.create_task(sync_to_async(find_tenant)()))
    return " ".join(sorted(names))


@server.tool(timeout=0.2)
async def endless() -> str:
    """Query for ever."""
    while True:
        await sync_to_async(find_tenant)()


@server.tool
async def stopping() -> str:
    """Raise what no future can have."""
    return str(await sync_to_async(next)(iter(())))


@server.tool(slow=True)
async def slow_tenant() -> str:
    """Name the tenant where a stream would be."""
    return await sync_to_async(find_tenant)()


@server.tool(task="optional")
async def optional_task() -> str:
    """Name the tenant, perhaps later."""
    return await sync_to_async(find_tenant)()


@server.tool(task="required")
async def required_task() -> str:
    """Name the tenant later."""
    return await sync_to_async(find_tenant)()


@server.tool(approval="caller")
def approved() -> str:
    """Name the tenant after an approval."""
    raise AssertionError("not approved")


@server.resource("tenant://name", subscribe=True)
async def tenant_name() -> str:
    """Name the tenant."""
    return await sync_to_async(find_tenant)()


class Waiting:
    """Tells when a function waits, and when it was cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()
        self.answered = threading.Event()


waiting = Waiting()


@server.tool
async def wait() -> str:
    """Wait for ever."""
    waiting.begun.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        waiting.cancelled.set()
        raise
    return ""


@server.tool
async def fail() -> str:
    """Fail with the name of the tenant."""
    raise ToolError(await sync_to_async(find_tenant)())


@pytest.fixture(autouse=True)
def _site(settings, _stage):
    settings.ROOT_URLCONF = HERE
    settings.MIDDLEWARE = [f"{HERE}.Tenancy", *settings.MIDDLEWARE]
    settings.MCP_DJANGO = {"THREAD_CONTEXT": True, "QUEUE": 512}


def application(mount: str) -> Any:
    """A mount of the URLconf with the middleware of the test's settings."""
    return get_asgi_application() if mount == "lane" else get_django_application()


async def ask(mount: str, body: Any, *, verb: str = "POST", **changes: str | None) -> Answer:
    if mount == "wsgi":
        return await in_thread(wsgi, "/mcp", body, verb=verb, client=Client(), **changes)
    return await send(application(mount), "/mcp", body, verb=verb, **changes)


def tool_call(name: str, **meta: Any) -> dict[str, Any]:
    return message("tools/call", {"name": name, "arguments": {}}, **meta)


def text_of(answer: Answer) -> str:
    assert not answer.is_stream
    text: str = answer.json()["result"]["content"][0]["text"]
    return text


async def opened(mount: str) -> dict[str, str | None]:
    """The headers of a session."""
    headers: dict[str, str | None] = {"mcp_protocol_version": None, "mcp_method": None}
    answer = await ask(mount, initialize(), **headers)
    headers |= {
        "mcp_session_id": answer.headers["mcp-session-id"],
        "mcp_protocol_version": answer.json()["result"]["protocolVersion"],
    }
    assert (await ask(mount, INITIALIZED, **headers)).status == 202
    return headers


@pytest.mark.parametrize("mount", MOUNTS)
@pytest.mark.parametrize(
    "name",
    ["sync_tenant", "async_tenant", "tenant_in_body", "slow_tenant", "optional_task", "fail"],
)
@pytest.mark.django_db(transaction=True)
async def test_functions_find_the_tenant_of_their_request(mount, name):
    session = await opened(mount)

    async def ask_as(tenant: str, number: int) -> tuple[str, str]:
        if number % 2:
            body = call(name, progress=number)
            return tenant, text_of(await ask(mount, body, x_tenant=tenant, **session))
        body = tool_call(name, progressToken=number)
        return tenant, text_of(await ask(mount, body, x_tenant=tenant))

    tenants = random.choices(TENANTS, k=CALLERS)
    answers = await asyncio.gather(*map(ask_as, tenants, range(CALLERS)))
    assert {(tenant, text) for tenant, text in answers} == {(name, name) for name in set(tenants)}


@pytest.mark.parametrize("mount", MOUNTS)
@pytest.mark.parametrize(
    ("name", "reason"), [("endless", "longer than 0.2 seconds"), ("stopping", "server error")]
)
async def test_a_function_that_does_not_end_well_ends(mount, name, reason):
    answer = await ask(mount, tool_call(name), x_tenant="alpha")
    assert answer.json()["result"]["isError"]
    assert reason in text_of(answer)


@pytest.mark.parametrize("mount", MOUNTS)
async def test_a_resource_is_read_as_the_tenant(mount):
    body = message("resources/read", {"uri": "tenant://name"})
    answer = await ask(mount, body, x_tenant="beta")
    assert answer.json()["result"]["contents"][0]["text"] == "beta"


def refused(answer: Answer) -> str:
    text: str = answer.json()["error"]["message"]
    assert 'MCP_DJANGO["THREAD_CONTEXT"]' in text
    return text


@pytest.mark.parametrize("mount", MOUNTS)
@pytest.mark.django_db(transaction=True)
async def test_streams_are_refused(mount):
    session = await opened(mount)
    wanted = {"notifications": {"toolsListChanged": True}}
    assert "Streams" in refused(await ask(mount, message("subscriptions/listen", wanted)))
    subscribe = request("resources/subscribe", {"uri": "tenant://name"})
    assert "Subscriptions" in refused(await ask(mount, subscribe, **session))
    answer = await ask(mount, b"", verb="GET", **{**session, "accept": "text/event-stream"})
    assert (answer.status, answer.headers["allow"]) == (405, "POST, OPTIONS, DELETE")
    discovered = (await ask(mount, message("server/discover"))).json()["result"]["capabilities"]
    assert "subscribe" not in discovered["resources"]
    assert "listChanged" not in discovered["tools"]


@pytest.mark.parametrize("mount", MOUNTS)
async def test_http_sse_is_refused(mount):
    changes = {"mcp_protocol_version": None, "mcp_method": None, "accept": "text/event-stream"}
    if mount == "wsgi":
        answer = await in_thread(wsgi, "/mcp/sse", b"", verb="GET", client=Client(), **changes)
    else:
        answer = await send(application(mount), "/mcp/sse", b"", verb="GET", **changes)
    assert answer.status == 405
    assert "Streams" in refused(answer)


@pytest.mark.parametrize("mount", MOUNTS)
@pytest.mark.django_db(transaction=True)
async def test_tasks_and_approvals_are_refused(mount, token):
    extensions = {CLIENT_CAPABILITIES: {"extensions": {TASKS: {}}}}
    assert "Tasks" in refused(await ask(mount, tool_call("required_task", **extensions)))
    assert text_of(await ask(mount, tool_call("optional_task", **extensions), x_tenant="beta")) == (
        "beta"
    )
    listed = message("tasks/get", {"taskId": "none"}, **extensions)
    answer = await ask(mount, listed, mcp_name="none")
    assert answer.json()["error"]["message"] == f"This server does not support {TASKS}."
    session = await opened(mount)
    body = request("tools/call", {"name": "optional_task", "arguments": {}, "task": {}})
    assert "Tasks" in refused(await ask(mount, body, **session))
    tools = (await ask(mount, request("tools/list"), **session)).json()["result"]["tools"]
    assert not any("execution" in tool for tool in tools)
    answer = await ask(mount, tool_call("approved"), authorization=token)
    assert answer.json()["result"]["isError"]
    assert "Nothing was done. Approvals are" in text_of(answer)


@pytest.mark.parametrize("kind", ["raw", "consumer"])
async def test_mounts_without_middleware_are_refused(kind):
    mounted: Any = server.asgi if kind == "raw" else MCPConsumer.as_asgi(server=server)
    router = URLRouter([re_path("^mcp(?:/health)?$", mounted)])
    answer = await send(router, "/mcp", tool_call("sync_tenant"))
    assert answer.status == 501
    assert "without the site's middleware" in refused(answer)


def test_stdio_is_refused():
    with pytest.raises(CommandError, match="THREAD_CONTEXT"):
        call_command("mcp", "stdio", "--server", "tenants")


@pytest.mark.parametrize("mount", ["lane", "view"])
async def test_a_client_that_leaves_cancels_its_function_and_frees_the_thread(mount):
    served = application(mount)
    waiting.begun.clear()
    waiting.cancelled.clear()
    async with connect(served, "/mcp", tool_call("wait"), x_tenant="alpha"):
        assert await asyncio.to_thread(waiting.begun.wait, 10)
    assert await asyncio.to_thread(waiting.cancelled.wait, 10)
    answers = await asyncio.gather(
        *[send(served, "/mcp", tool_call("async_tenant"), x_tenant="beta") for _ in range(CALLERS)]
    )
    assert set(map(text_of, answers)) == {"beta"}


async def test_middleware_that_raises_afterwards_leaves_nothing_behind(settings):
    right = application("lane")
    settings.MIDDLEWARE = [settings.MIDDLEWARE[0], f"{HERE}.Breaking"]
    breaking = application("lane")
    for tenant in TENANTS:
        answer = await send(breaking, "/mcp", tool_call("async_tenant"), x_tenant=tenant)
        assert answer.status == 500
        answer = await send(right, "/mcp", tool_call("async_tenant"))
        assert text_of(answer) == "none"


async def test_a_package_that_is_not_used_changes_nothing(settings, monkeypatch):
    engine = "django_tenants.postgresql_backend"
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", engine)
    settings.MCP_DJANGO = {}
    answer = await send(application("lane"), "/mcp", tool_call("slow_tenant"), x_tenant="beta")
    assert text_of(answer) == "beta"
    settings.MCP_DJANGO = {"THREAD_CONTEXT": False}
    answer = await send(application("lane"), "/mcp", tool_call("slow_tenant"))
    assert answer.is_stream


@pytest.mark.django_db(transaction=True)
async def test_sessions_of_signed_in_callers_are_refused_where_users_are_tenants_own(
    settings, token
):
    settings.TENANT_APPS = ["django.contrib.auth"]
    headers: dict[str, str | None] = {"mcp_protocol_version": None, "mcp_method": None}
    answer = await ask("lane", initialize(), authorization=token, **headers)
    # The token is of a table that all tenants share, and each has its own users.
    assert answer.status == 401
    assert "keeps users in the tables of each tenant" in answer.json()["error_description"]
    settings.TENANT_APPS = ["django.contrib.auth", "mcp_django"]
    answer = await ask("lane", initialize(), authorization=token, **headers)
    assert "Sessions of signed-in callers are not available" in refused(answer)
    assert not await Session.objects.aexists()
    assert (await ask("lane", initialize(), **headers)).status == 200


async def test_an_answer_counts_for_the_tenant_that_was_asked():
    lane = application("lane")
    capabilities = {CLIENT_CAPABILITIES: {"elicitation": {"form": {}}}}
    asked = (await send(lane, "/mcp", tool_call("asking", **capabilities))).json()["result"]
    [key] = asked["inputRequests"]
    body = tool_call("asking", **capabilities)
    body["params"] |= {
        "inputResponses": {key: {"action": "accept", "content": {}}},
        "requestState": asked["requestState"],
    }
    answer = await send(lane, "/other/mcp", body, x_tenant="beta")
    assert "belongs to another request" in answer.json()["error"]["message"]
    answer = await send(lane, "/mcp", body, x_tenant="beta")
    assert text_of(answer) == "beta"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("call_log")
async def test_a_late_call_is_logged_in_its_own_thread():
    heard: list[str] = []
    ended = threading.Event()

    def hear(**kwargs: Any) -> None:
        heard.append(find_tenant())
        ended.set()

    waiting.answered.clear()
    call_finished.connect(hear)
    try:
        answer = await send(application("lane"), "/mcp", tool_call("late"), x_tenant="alpha")
        assert "longer than 0.1 seconds" in text_of(answer)
        waiting.answered.set()
        assert await asyncio.to_thread(ended.wait, 10)
    finally:
        call_finished.disconnect(hear)
    assert heard == ["alpha"]


@pytest.mark.django_db(transaction=True)
async def test_a_large_body_is_authorized_in_the_thread_of_the_middleware(token):
    lane = application("lane")
    body = message("tools/call", {"name": "sync_tenant", "arguments": {"x": "x" * 70_000}})
    for tenant, status in (("alpha", 200), ("beta", 403), ("alpha", 200)):
        answer = await send(lane, "/guarded/mcp", body, x_tenant=tenant, authorization=token)
        assert answer.status == status, answer.body


@pytest.mark.django_db(transaction=True)
async def test_a_tenant_of_the_user_is_not_known_before_the_caller(token, settings, monkeypatch):
    monkeypatch.setattr(tenants, "_USER_MIDDLEWARE", {f"{HERE}.Tenancy"})
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "TITLE": "Of users"}
    for authorization in (token, None):
        answer = await ask("lane", tool_call("sync_tenant"), authorization=authorization)
        assert answer.status == 401
        assert "takes the tenant from a user" in answer.json()["error_description"]
    settings.MCP_DJANGO = {"THREAD_CONTEXT": False}
    assert (await ask("lane", tool_call("sync_tenant"), authorization=token)).status == 200


class UsersElsewhere:
    """Keeps the users in the database of a tenant."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "tenant" if model is User else None


def test_users_are_those_of_a_tenant_if_types_or_routers_say_so(settings):
    assert not tenants.has_tenant_users()
    settings.TENANT_TYPES = {
        "public": {"APPS": ["django.contrib.auth"]},
        "shop": {"APPS": ["django.contrib.contenttypes"]},
    }
    assert not tenants.has_tenant_users()
    settings.TENANT_TYPES = {"public": {}, "shop": {"APPS": ["django.contrib.auth"]}}
    assert tenants.has_tenant_users()
    del settings.TENANT_TYPES
    settings.DATABASE_ROUTERS = [UsersElsewhere()]
    assert tenants.has_tenant_users()
    settings.MCP_DJANGO = {}
    assert not tenants.has_tenant_users()


def test_a_package_that_is_imported_alone_is_used(settings, monkeypatch):
    settings.MCP_DJANGO = {}
    assert tenants.thread_context() == ""
    monkeypatch.setitem(sys.modules, "django_scopes", sys)
    settings.MCP_DJANGO = {}
    assert tenants.thread_context() == "django_scopes"


def test_a_command_without_a_tenant_is_refused():
    with pytest.raises(CommandError, match=r"mcp call is not available .* tenant_command"):
        call_command("mcp", "call", "sync_tenant", "--server", "tenants")


@pytest.mark.django_db(transaction=True)
async def test_the_use_of_a_tenants_token_is_noted_in_its_thread(token, settings):
    settings.TENANT_APPS = ["mcp_django"]
    await ask("lane", tool_call("sync_tenant"), authorization=token)
    assert (await AccessToken.objects.aget()).last_used_at is not None


@pytest.mark.django_db(transaction=True)
def test_the_admin_is_closed_to_users_of_a_tenant(settings, client):
    settings.ROOT_URLCONF = "tests.sites.example.urls"
    settings.MIDDLEWARE = settings.MIDDLEWARE[1:]
    client.force_login(User.objects.create_superuser("root"))
    names = [
        (pattern.name, pattern.pattern.converters)
        for resolver in get_resolver().url_patterns
        if getattr(resolver, "namespace", "") == "admin"
        for inner in resolver.url_patterns
        for pattern in getattr(inner, "url_patterns", [inner])
        if str(pattern.name).startswith(("mcp_django_", "mcp_oauth_"))
    ]
    assert len(names) > 50
    addresses = {
        reverse(f"admin:{name}", kwargs=dict.fromkeys(converters, 1)) for name, converters in names
    }
    settings.TENANT_APPS = ["django.contrib.auth"]
    answers = {address: client.get(address).status_code for address in addresses}
    assert set(answers.values()) <= {403, 404}, answers
