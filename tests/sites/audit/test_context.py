"""What a call leaves behind, nested calls, failures, tasks, and packages that are not known."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import nullcontext
from typing import Any

import pytest
import reversion
from asgiref.sync import sync_to_async
from auditlog import context as auditlog_context
from auditlog.models import LogEntry
from crum import get_current_request, get_current_user, impersonate
from django.db.models.signals import pre_save
from reversion.signals import pre_revision_commit
from simple_history.models import HistoricalRecords

from mcp_django import Context, MCPServer, ToolError
from mcp_django.auth.permissions import AllowAny
from mcp_django.execution.audit import has_audit_packages
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES
from mcp_django.protocol.errors import TASKS, extension_declaration
from mcp_django.test import MCPClient
from tests.kit.drivers import PATIENCE, message
from tests.kit.servers import person
from tests.sites.audit import contexts
from tests.sites.audit.callers import Caller, ToolCall, call
from tests.sites.audit.models import Note
from tests.sites.audit.recorded import NOBODY, NOTHING, PACKAGES, easy_audit_user, recorded
from tests.transports.mounts import ask, in_thread

BY_ADA = dict.fromkeys(PACKAGES, "ada")


def state() -> dict[str, Any]:
    """Return what the packages know in this thread."""
    return {
        "simple_history": getattr(HistoricalRecords.context, "request", None),
        "auditlog": auditlog_context.auditlog_value.get(None),
        "auditlog receivers": len(pre_save.receivers),
        "crum": (get_current_request(), get_current_user()),
        "reversion": reversion.is_active(),
        "pghistory": _tracked(),
    }


def _tracked() -> Any:
    if "pghistory" not in PACKAGES:
        return None
    import pghistory

    # Without a block this changes nothing; inside of one it would be in the metadata.
    with pghistory.context() as current:
        return dict(current.metadata)


@pytest.fixture
def server():
    return MCPServer("inline", permission=AllowAny)


def client_of(server: MCPServer, user: Any = None) -> MCPClient:
    return MCPClient(server=server, user=user, raise_exceptions=False)


# What stays ---------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_stays_for_the_next_call_of_the_thread(server, fails):
    inside: list[dict[str, Any]] = []

    @server.tool
    def tool() -> str:
        inside.append(state())
        if fails:
            raise ToolError("No.")
        return "done"

    before = state()
    ada = person("ada")
    assert client_of(server, ada).call_tool("tool", check=False).is_error is fails
    assert state() == before
    assert inside[0] != before
    assert inside[0]["crum"][1] == ada


@pytest.mark.django_db
def test_a_context_of_the_site_is_the_same_afterwards(server):
    ada, bob = person("ada"), person("bob")

    @server.tool
    def tool() -> str:
        Note.objects.create(text="inside")
        return str(get_current_user())

    with impersonate(bob), auditlog_context.set_actor(bob), reversion.create_revision():
        reversion.set_user(bob)
        assert client_of(server, ada).call_tool("tool").text == "ada"
        Note.objects.create(text="afterwards")
        assert get_current_user() == bob
    for text, name in (("inside", "ada"), ("afterwards", "bob")):
        assert recorded(text)["auditlog"] == name
        assert recorded(text)["crum"] == name


# Nested calls -------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_nested_call_does_is_the_callers_too(server, is_async):
    @server.resource("notes://new")
    def new_note() -> str:
        return Note.objects.create(text="nested").text

    if is_async:

        @server.tool
        async def tool(ctx: Context) -> str:
            await ctx.aread_resource("notes://new")
            return (await Note.objects.acreate(text="own")).text
    else:

        @server.tool
        def tool(ctx: Context) -> str:
            ctx.read_resource("notes://new")
            return Note.objects.create(text="own").text

    client_of(server, person("ada")).call_tool("tool")
    assert recorded("nested") == BY_ADA
    assert recorded("own") == BY_ADA


@pytest.mark.django_db
def test_a_block_of_the_function_is_in_the_revision_of_the_call(server):
    @server.tool
    async def tool() -> str:
        def write() -> None:
            with reversion.create_revision():
                Note.objects.create(text="block")

        await sync_to_async(write)()
        return "done"

    client_of(server, person("ada")).call_tool("tool")
    assert recorded("block")["reversion"] == "ada"


@pytest.mark.django_db
def test_a_user_that_the_function_chose_stays_after_a_nested_call(server):
    bob = person("bob")

    @server.resource("notes://new")
    def new_note() -> str:
        return str(reversion.get_user())

    @server.tool
    def tool(ctx: Context) -> str:
        reversion.set_user(bob)
        Note.objects.create(text="chosen")
        return str(ctx.read_resource("notes://new"))

    assert "ada" in client_of(server, person("ada")).call_tool("tool").text
    assert recorded("chosen")["reversion"] == "bob"


# Failures -----------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("is_async", [False, True])
def test_a_package_that_fails_fails_the_call(server, is_async, monkeypatch, caplog):
    def break_down(context_data: Any) -> Any:
        raise RuntimeError("no entry today")

    monkeypatch.setattr(auditlog_context, "set_extra_data", break_down)

    async def write_later() -> str:
        return (await Note.objects.acreate(text="unaudited")).text

    def write() -> str:
        return Note.objects.create(text="unaudited").text

    server.tool("tool")(write_later if is_async else write)
    before = state()
    result = client_of(server, person("ada")).call_tool("tool", check=False)
    assert result.is_error
    assert "no entry today" not in result.text
    assert not Note.objects.exists()
    assert "The audit package 'auditlog' failed, so the call fails too." in caplog.text
    assert "no entry today" in caplog.text
    assert state() == before


@pytest.mark.django_db
@pytest.mark.parametrize("is_async", [False, True])
def test_a_revision_that_cannot_be_stored_fails_the_call(server, is_async):
    def refuse(**kwargs: Any) -> None:
        raise RuntimeError("no revision today")

    async def write_later() -> str:
        return (await Note.objects.acreate(text="unaudited")).text

    def write() -> str:
        return Note.objects.create(text="unaudited").text

    server.tool("tool")(write_later if is_async else write)
    pre_revision_commit.connect(refuse)
    try:
        result = client_of(server, person("ada")).call_tool("tool", check=False)
    finally:
        pre_revision_commit.disconnect(refuse)
    assert result.is_error
    assert not Note.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("atomic", [False, True])
def test_the_revision_has_what_a_failed_function_left(server, atomic):
    @server.tool(atomic=atomic)
    def tool() -> str:
        note = Note.objects.get()
        note.text = "changed"
        note.save()
        raise ToolError("No.")

    Note.objects.create(text="unchanged")
    client_of(server, person("ada")).call_tool("tool", check=False)
    assert recorded("unchanged" if atomic else "changed")["reversion"] == (
        NOTHING if atomic else "ada"
    )


# Details ------------------------------------------------------------------------------------------


async def test_an_entry_has_the_address_and_the_correlation_id(ada):
    body = message("tools/call", {"name": "write", "arguments": {"text": "addressed"}})
    changes = {"authorization": ada.token, "x_correlation_id": "c-1"}
    assert (await ask("raw", "/notes/mcp", body, **changes)).status == 200

    def log_entry() -> LogEntry:
        return LogEntry.objects.get_for_object(Note.objects.get()).get()

    row = await in_thread(log_entry)
    assert (row.remote_addr, row.cid) == ("127.0.0.1", "c-1")


async def test_an_older_auditlog_records_the_caller_and_the_address(ada, monkeypatch):
    # Version 3.4 added this function.
    monkeypatch.delattr(auditlog_context, "set_extra_data")
    tool_call = ToolCall(server="notes", tool="write", arguments={"text": "older"})
    assert (await call("raw", ada, tool_call)).is_done

    def log_entry() -> LogEntry:
        return LogEntry.objects.get_for_object(Note.objects.get()).select_related("actor").get()

    row = await in_thread(log_entry)
    assert (row.actor.username, row.remote_addr) == ("ada", "127.0.0.1")


@pytest.mark.parametrize("tool", ["write_as_task", "write_as_task_later"])
async def test_a_task_is_recorded_as_its_caller(tool, ada):
    declared = {CLIENT_CAPABILITIES: extension_declaration(TASKS)}

    async def run(caller: Caller, text: str) -> dict[str, str]:
        params = {"name": tool, "arguments": {"text": text}}
        body = message("tools/call", params, **declared)
        answer = await ask("lane", "/notes/mcp", body, authorization=caller.token)
        task_id = answer.response()["result"]["taskId"]

        async def status() -> str:
            body = message("tasks/get", {"taskId": task_id}, **declared)
            answer = await ask(
                "lane", "/notes/mcp", body, authorization=caller.token, mcp_name=task_id
            )
            task_status: str = answer.response()["result"]["status"]
            return task_status

        async with asyncio.timeout(PATIENCE):
            while await status() == "working":
                pass
        return await in_thread(recorded, text)

    assert await run(ada, "as ada") == BY_ADA
    assert await run(Caller(), "as nobody") == dict.fromkeys(PACKAGES, NOBODY)


# Packages that are not known ----------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["write", "write_later"])
@pytest.mark.parametrize("mount", ["stdio", "command", "lane", "raw"])
async def test_the_setting_tells_another_package(mount, tool, ada, settings):
    settings.MCP_DJANGO = {"AUDIT_CONTEXT": "tests.sites.audit.contexts.easy_audit_context"}
    for name, caller in {"ada": ada, NOBODY: Caller()}.items():
        wanted = ToolCall(server="notes", tool=tool, arguments={"text": name})
        assert (await call(mount, caller, wanted)).is_done
        assert await in_thread(easy_audit_user, name) == name


@pytest.mark.django_db
def test_the_setting_gets_the_user_and_the_request(server, settings, monkeypatch):
    entered: list[Any] = []

    def enter(user: Any, request: Any) -> Any:
        entered.append((user, request, threading.get_ident()))
        return nullcontext()

    monkeypatch.setattr(contexts, "enter", enter, raising=False)
    settings.MCP_DJANGO = {"AUDIT_CONTEXT": "tests.sites.audit.contexts.enter"}
    threads = []
    server.tool("tool")(lambda: threads.append(threading.get_ident()))
    ada = person("ada")
    client_of(server, ada).call_tool("tool")
    assert entered == [(ada, None, threads[0])]


@pytest.mark.parametrize("tool", ["write", "write_later"])
@pytest.mark.parametrize("mount", ["wsgi", "view", "lane"])
async def test_middleware_of_the_site_finds_the_caller_late(mount, tool, ada, settings):
    settings.MCP_DJANGO = {"THREAD_CONTEXT": "tests.sites.audit.contexts.NoTenant"}
    for name, caller in {"ada": ada, NOBODY: Caller()}.items():
        wanted = ToolCall(server="notes", tool=tool, arguments={"text": name})
        assert (await call(mount, caller, wanted)).is_done
        note = await in_thread(Note.objects.select_related("late_user").get, text=name)
        assert getattr(note.late_user, "username", NOBODY) == name


# Which packages are installed ---------------------------------------------------------------------


def test_a_package_counts_by_its_app_or_its_middleware_and_crum_by_its_import(
    settings, monkeypatch
):
    assert has_audit_packages()
    crum = sys.modules["crum"]
    monkeypatch.delitem(sys.modules, "crum")
    known = ("auditlog", "reversion", "simple_history", "pghistory", "pgtrigger")
    settings.INSTALLED_APPS = [
        name for name in settings.INSTALLED_APPS if name not in {*known, "tests.sites.audit"}
    ]
    assert has_audit_packages()
    settings.MIDDLEWARE = []
    assert not has_audit_packages()
    monkeypatch.setitem(sys.modules, "crum", crum)
    settings.MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
    assert has_audit_packages()
    monkeypatch.delitem(sys.modules, "crum")
    settings.MIDDLEWARE = []
    assert not has_audit_packages()
    settings.MCP_DJANGO = {"AUDIT_CONTEXT": "tests.sites.audit.contexts.easy_audit_context"}
    assert has_audit_packages()
