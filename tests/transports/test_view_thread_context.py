"""Functions find the tenant that middleware stores in its thread, wherever they run.

`tests/sites/tenants` does the same with real packages, databases and servers.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.routing import URLRouter
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application as get_django_application
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import include, path, re_path

from mcp_django import Context, MCPServer, ToolError, tenants
from mcp_django.asgi import get_asgi_application
from mcp_django.auth.limits import accepted_credentials
from mcp_django.auth.permissions import AllowAny, BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.models import AccessToken, Approval, Task
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES
from mcp_django.protocol.errors import TASKS
from mcp_django.signals import call_finished
from mcp_django.tenants import ThreadContext
from mcp_django.transports import stream_access
from mcp_django.transports.consumer import MCPConsumer
from tests.kit.drivers import Answer, connect, message, send
from tests.transports.http_session.handshakes import INITIALIZED, call, initialize
from tests.transports.mounts import in_thread, wsgi

HERE = "tests.transports.test_view_thread_context"
MOUNTS = ("lane", "view", "wsgi", "raw", "consumer")
WITH_MIDDLEWARE = MOUNTS[:3]
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
# Tenants that no longer exist.
gone: set[str] = set()


class Entering(ThreadContext):
    """Enters the tenant that `Tenancy` stores."""

    def capture(self, request: HttpRequest | None) -> str:
        return find_tenant() if request is None else request.headers.get("x-tenant", "none")

    @contextmanager
    def enter(self, tenant: str) -> Iterator[None]:
        assert asyncio._get_running_loop() is None
        if tenant in gone:
            raise LookupError(tenant)
        before, _thread.tenant = find_tenant(), tenant
        try:
            yield
        finally:
            _thread.tenant = before


class Tenancy:
    """Stores the tenant in the thread, as many packages do."""

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
        # As a signal receiver does that sends to a channel layer.
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
    return find_tenant()


@server.resource("tenant://name", subscribe=True)
async def tenant_name() -> str:
    """Name the tenant."""
    return await sync_to_async(find_tenant)()


class Waiting:
    """Events: a function waits, it was cancelled, its call was answered."""

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
    settings.MCP_DJANGO = {"THREAD_CONTEXT": f"{HERE}.Entering", "QUEUE": 512}
    gone.clear()


def application(mount: str) -> Any:
    """Return a mount: of the URLconf with the test's middleware, or without any middleware."""
    if mount in {"raw", "consumer"}:
        mounted: Any = server.asgi if mount == "raw" else MCPConsumer.as_asgi(server=server)
        return URLRouter([re_path("^mcp(?:/health|/sse|/messages)?$", mounted)])
    return get_asgi_application() if mount == "lane" else get_django_application()


@pytest.fixture
def tokens(transactional_db):
    """An Authorization header of one user for each tenant."""
    user = User.objects.create_user("ada", is_staff=True)
    bearers = {}
    for tenant in TENANTS:
        with tenants.as_tenant(tenant):
            bearers[tenant] = f"Bearer {AccessToken.objects.issue(user, name='test')[1]}"
    return bearers


async def ask(mount: str, body: Any, *, verb: str = "POST", **changes: str | None) -> Answer:
    if mount == "wsgi":
        return await in_thread(wsgi, "/mcp", body, verb=verb, client=Client(), **changes)
    return await send(application(mount), "/mcp", body, verb=verb, **changes)


def tool_call(name: str, **meta: Any) -> dict[str, Any]:
    return message("tools/call", {"name": name, "arguments": {}}, **meta)


def text_of(answer: Answer) -> str:
    text: str = answer.response()["result"]["content"][0]["text"]
    return text


async def opened(mount: str, tenant: str) -> dict[str, str | None]:
    """Open a session of a tenant, and return its headers."""
    headers: dict[str, str | None] = {
        "mcp_protocol_version": None,
        "mcp_method": None,
        "x_tenant": tenant,
    }
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
    sessions = {tenant: await opened(mount, tenant) for tenant in TENANTS}

    async def ask_as(tenant: str, number: int) -> tuple[str, str]:
        if number % 2:
            body = call(name, progress=number)
            return tenant, text_of(await ask(mount, body, **sessions[tenant]))
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


@pytest.mark.parametrize("mount", MOUNTS)
async def test_a_stream_is_one_where_there_are_streams(mount):
    for name in ("slow_tenant", "async_tenant"):
        answer = await ask(mount, tool_call(name, progressToken=1), x_tenant="beta")
        assert (answer.is_stream, text_of(answer)) == (mount != "wsgi", "beta")


@pytest.mark.parametrize("mount", MOUNTS)
@pytest.mark.django_db(transaction=True)
async def test_a_task_runs_as_the_tenant_and_is_unknown_to_others(mount):
    extensions = {CLIENT_CAPABILITIES: {"extensions": {TASKS: {}}}}
    begun = await ask(mount, tool_call("required_task", **extensions), x_tenant="beta")
    task_id = begun.json()["result"]["taskId"]
    body = message("tasks/get", {"taskId": task_id}, **extensions)
    while True:
        headers = {"mcp_name": task_id, "x_tenant": "beta"}
        result = (await ask(mount, body, **headers)).json()["result"]
        if result["status"] != "working":
            break
        await asyncio.sleep(0)
    assert result["result"]["content"][0]["text"] == "beta"
    for other in ("alpha", None):
        answer = await ask(mount, body, mcp_name=task_id, x_tenant=other)
        assert answer.json()["error"]["code"] == -32602
    assert (await Task.objects.aget()).tenant == "beta"


@pytest.mark.parametrize("mount", MOUNTS)
@pytest.mark.django_db(transaction=True)
async def test_the_health_check_needs_no_tenant(mount, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "HEALTH": True}
    answers = set()
    for tenant in ("alpha", None):
        if mount == "wsgi":
            answer = await in_thread(
                wsgi, "/mcp/health", b"", verb="GET", client=Client(), x_tenant=tenant
            )
        else:
            answer = await send(application(mount), "/mcp/health", b"", verb="GET", x_tenant=tenant)
        answers.add(answer.status)
    assert answers == {200}


@pytest.mark.parametrize("mount", WITH_MIDDLEWARE)
@pytest.mark.django_db(transaction=True)
async def test_an_approval_is_one_of_the_tenant(mount, tokens):
    """Another tenant can neither decide about it nor use it."""
    headers = {"authorization": tokens["alpha"], "x_tenant": "alpha"}
    answer = await ask(mount, tool_call("approved"), **headers)
    assert answer.status == 200, answer.body
    [path] = re.findall(r"(/mcp/approvals/[\w-]+)", answer.body.decode())
    assert (await Approval.objects.aget()).tenant == "alpha"
    await Approval.objects.aupdate(state="granted")
    browser = Client()
    await in_thread(browser.force_login, await User.objects.aget())
    for tenant, status in (("beta", 404), ("alpha", 200)):
        page = await in_thread(browser.get, path, headers={"x-tenant": tenant})
        assert page.status_code == status
    again = await ask(mount, tool_call("approved"), **headers)
    assert text_of(again) == "alpha"


@pytest.mark.django_db(transaction=True)
def test_a_command_works_for_the_tenant_that_is_named(capsys):
    call_command("mcp", "call", "sync_tenant", "--server", "tenants", "--tenant", "beta")
    assert "beta" in capsys.readouterr().out
    # Without the option, it is the tenant of the command's thread.
    call_command("mcp", "call", "sync_tenant", "--server", "tenants")
    assert "none" in capsys.readouterr().out


@pytest.mark.parametrize("subcommand", [("stdio",), ("call", "sync_tenant")])
def test_a_command_without_a_tenant_is_refused(monkeypatch, subcommand):
    monkeypatch.setattr(Entering, "capture", lambda self, request: "")
    with pytest.raises(CommandError, match="--tenant NAME"):
        call_command("mcp", *subcommand, "--server", "tenants")


def test_a_command_for_a_tenant_of_a_site_without_any_is_refused(settings):
    settings.MCP_DJANGO = {}
    with pytest.raises(CommandError, match="--tenant 'beta' names a tenant, and the site has none"):
        call_command("mcp", "list", "--tenant", "beta")


class Sick(Entering):
    """Captures `answer`, or what calling it returns or raises."""

    answer: Any = None

    def capture(self, request: HttpRequest | None) -> Any:
        if callable(self.answer):
            return self.answer()
        return self.answer


def fail_to_capture() -> str:
    raise RuntimeError("no tenant today")


def find_no_tenant() -> str:
    raise Http404


@pytest.mark.parametrize("mount", MOUNTS)
@pytest.mark.parametrize(
    ("answer", "status", "line"),
    [
        ("x" * 10_000, 500, "of 10000 characters; a tenant has at most 255"),
        (None, 500, "Sick.capture() returned None, which is not a text"),
        ("a\0b", 500, "and no NUL"),
        (fail_to_capture, 500, "no tenant today"),
        (find_no_tenant, 404, ""),
    ],
)
async def test_a_tenant_that_cannot_be_told(
    mount, answer, status, line, settings, monkeypatch, caplog
):
    monkeypatch.setattr(Sick, "answer", staticmethod(answer) if callable(answer) else answer)
    settings.MCP_DJANGO = {"THREAD_CONTEXT": f"{HERE}.Sick"}
    refused = await ask(mount, tool_call("sync_tenant"))
    assert refused.status == status
    assert "tenant" not in refused.json()["error"]["message"]
    assert line in caplog.text


@pytest.mark.parametrize("mount", ["raw", "consumer"])
async def test_a_class_that_hangs_is_not_waited_for(mount, settings, monkeypatch):
    hung, ended = threading.Event(), threading.Event()

    def hang() -> str:
        hung.set()
        ended.wait(30)
        return "late"

    monkeypatch.setattr(Sick, "answer", staticmethod(hang))
    settings.MCP_DJANGO = {"THREAD_CONTEXT": f"{HERE}.Sick", "QUEUE_SECONDS": 0.2}
    try:
        answer = await ask(mount, tool_call("sync_tenant"))
        assert hung.is_set()
        assert answer.status == 503
    finally:
        ended.set()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("tests.nowhere.Context", "No module named"),
        (f"{HERE}.find_tenant", "is not a class derived from"),
        (f"{HERE}.Missing", "Missing"),
    ],
)
def test_a_class_that_cannot_be_used_is_named(settings, path, reason):
    settings.MCP_DJANGO = {"THREAD_CONTEXT": path}
    # Since Django 6.0, no databases means all of them.
    every = run_checks(tags=["mcp_django"], databases=[])
    [problem] = [message for message in every if message.id == "mcp_django.E018"]
    assert path in problem.msg
    assert reason in problem.msg


@pytest.mark.parametrize("mount", ["lane", "raw", "view"])
@pytest.mark.django_db(transaction=True)
async def test_a_tenant_that_is_deleted_while_its_stream_is_open(mount, monkeypatch):
    """The stream ends without another message, and a new request gets an error."""
    wanted = message(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["tenant://name"]}}
    )
    served = application(mount)
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.05)
    async with connect(served, "/mcp", wanted, x_tenant="alpha") as listening:
        acknowledged = await listening.event()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        gone.add("alpha")
        assert "updated" not in str((await listening.rest()).body)
    answer = await ask(mount, tool_call("slow_tenant"), x_tenant="alpha")
    assert "alpha" not in str(answer.body)


@pytest.mark.parametrize("mount", ["raw", "consumer"])
@pytest.mark.parametrize("size", [1, 70_000])
@pytest.mark.django_db(transaction=True)
async def test_a_tenant_that_cannot_be_entered_any_more_is_a_server_error(mount, size):
    gone.add("alpha")
    body = message("tools/call", {"name": "sync_tenant", "arguments": {"x": "x" * size}})
    answer = await ask(mount, body, x_tenant="alpha", content_length=str(len(json.dumps(body))))
    assert answer.status == 500
    assert answer.json()["error"]["code"] == -32603
    assert "alpha" not in str(answer.body)
    assert (await ask(mount, tool_call("sync_tenant"), x_tenant="beta")).status == 200


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
    # The setting has to name the class that enters the package's tenants.
    assert answer.status == 500
    settings.MCP_DJANGO = {"THREAD_CONTEXT": False}
    answer = await send(application("lane"), "/mcp", tool_call("slow_tenant"))
    assert text_of(answer) == "none"


async def test_an_answer_counts_for_the_tenant_that_was_asked():
    lane = application("lane")
    capabilities = {CLIENT_CAPABILITIES: {"elicitation": {"form": {}}}}
    body = tool_call("asking", **capabilities)
    result = (await send(lane, "/mcp", body, x_tenant="beta")).json()["result"]
    [key] = result["inputRequests"]
    body = tool_call("asking", **capabilities)
    body["params"] |= {
        "inputResponses": {key: {"action": "accept", "content": {}}},
        "requestState": result["requestState"],
    }
    answer = await send(lane, "/mcp", body, x_tenant="alpha")
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
async def test_a_large_body_is_authorized_in_the_thread_of_the_middleware(tokens):
    lane = application("lane")
    body = message("tools/call", {"name": "sync_tenant", "arguments": {"x": "x" * 70_000}})
    size = str(len(json.dumps(body)))
    for tenant, status in (("alpha", 200), ("beta", 403), ("alpha", 200)):
        for length in (None, size):
            accepted_credentials.clear()
            answer = await send(
                *(lane, "/guarded/mcp", json.dumps(body).encode()),
                mcp_method="tools/call",
                mcp_name="sync_tenant",
                content_length=length,
                x_tenant=tenant,
                authorization=tokens[tenant],
            )
            assert answer.status == status, answer.body
    answer = await send(
        lane, "/guarded/mcp", json.dumps(body).encode(), content_length=size, x_tenant="alpha"
    )
    assert answer.status in {200, 400, 401}, answer.body


@pytest.mark.django_db(transaction=True)
async def test_a_tenant_of_the_user_is_not_known_before_the_caller(token, settings, monkeypatch):
    monkeypatch.setattr(tenants, "_USER_MIDDLEWARE", {f"{HERE}.Tenancy"})
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "TITLE": "Of users"}
    for authorization in (token, None):
        answer = await ask("lane", tool_call("sync_tenant"), authorization=authorization)
        assert answer.status == 401
        assert "takes the tenant from a user" in answer.json()["error_description"]
    settings.MCP_DJANGO = {"THREAD_CONTEXT": False}
    assert (await ask("lane", tool_call("sync_tenant"))).status == 200


class UsersElsewhere:
    """Routes the users to the database of a tenant."""

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
    assert tenants.thread_context() is None
    monkeypatch.setitem(sys.modules, "django_scopes", sys)
    settings.MCP_DJANGO = {}
    context = tenants.thread_context()
    assert isinstance(context, tenants.UnknownContext)
    assert "django_scopes chooses the rows" in context.message


@pytest.mark.django_db(transaction=True)
async def test_the_use_of_a_tenants_token_is_noted_in_its_thread(token, settings):
    settings.TENANT_APPS = ["mcp_django"]
    await ask("lane", tool_call("sync_tenant"), authorization=token)
    assert (await AccessToken.objects.aget()).last_used_at is not None
