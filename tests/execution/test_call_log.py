"""Every use of a component is one row of the call log, whatever its outcome."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest
from asgiref.sync import SyncToAsync, sync_to_async
from django.contrib.auth.models import Group
from django.db import DatabaseError, connections, transaction
from django.test import override_settings
from pydantic import BaseModel

from mcp_django import Context, MCPServer, ToolError
from mcp_django.auth.permissions import IsAuthenticated, IsStaff
from mcp_django.components.context import NullPort
from mcp_django.exceptions import AccessRefused, Busy, MCPError
from mcp_django.execution import invoke
from mcp_django.models import Call
from mcp_django.signals import call_finished, call_started
from mcp_django.storage.call_rows import CallLog
from mcp_django.test import DECLINE
from mcp_django.transports import memory
from mcp_django.transports.local_session import IncomingOnConnection
from tests.kit.servers import open_to_all, person, real_client

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("call_log")]


@pytest.fixture(autouse=True)
def _no_connection_is_left():
    """Close connections of asgiref's thread, or PostgreSQL cannot drop the test database."""
    yield
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


class Item(BaseModel):
    """What is bought."""

    price: int


class Reply(BaseModel):
    """What a user says."""

    yes: bool


def read(n: int = 1) -> int:
    """Read."""
    return n


def write(name: str) -> str:
    """Write."""
    Group.objects.create(name=name)
    return name


def server(*functions: Any, **options: Any) -> MCPServer:
    """Return a server that is open to all, with these tools."""
    made = open_to_all()
    for function in functions:
        made.tool(**options)(function)
    return made


def the_call() -> Call:
    """Return the only row of the call log."""
    return Call.objects.get()


def test_a_call_is_one_line():
    ada = person()
    made = server(read, read_only=True)
    real_client(server=made, user=ada).call_tool("read", {"n": 7})
    line = the_call()
    assert (line.server, line.kind, line.component) == ("inline", "tool", "read")
    assert (line.user_key, line.user_name) == (f"user:{ada.pk}", "ada")
    assert (line.outcome, line.code, line.reason) == ("ok", None, "")
    assert (line.revision, line.transport, line.origin) == ("2026-07-28", "memory", "client")
    assert line.client.startswith("mcp_django")
    assert (line.argument_names, line.arguments, line.writes) == (["n"], None, False)
    assert line.ms is not None
    assert line.bytes
    assert line.rows == 0


def test_a_resource_and_a_prompt_are_lines_too():
    made = open_to_all()
    made.resource("shop://orders/{number}")(lambda number: number)
    made.prompt(name="greet")(lambda who: who)
    client = real_client(server=made)
    client.read_resource("shop://orders/4711")
    client.get_prompt("greet", {"who": "Eve"})
    rows = Call.objects.order_by("id").values_list("kind", "component", "argument_names", "uri")
    # The URI contains the value of an argument, which is logged only if the site owner enables it.
    assert list(rows) == [
        ("resource template", "shop://orders/{number}", ["number"], ""),
        ("prompt", "greet", ["who"], ""),
    ]


def test_rows_that_were_read_are_counted():
    Group.objects.bulk_create([Group(name=f"{n}") for n in range(3)])

    def count() -> int:
        """Count."""
        return len(list(Group.objects.all()))

    real_client(server=server(count, read_only=True)).call_tool("count")
    assert the_call().rows == 3


@pytest.mark.parametrize(
    ("raised", "outcome", "reason"),
    [
        (ToolError("No order 4711"), "error", "ToolError"),
        (Group.DoesNotExist("4711"), "error", "DoesNotExist"),
        (KeyError("4711"), "failed", "KeyError"),
        (SystemExit("4711"), "failed", "CallAborted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_a_failure_is_told_by_its_name(raised, outcome, reason):
    def fail() -> None:
        """Fail."""
        raise raised

    real_client(server=server(fail)).call_tool("fail", check=False)
    line = the_call()
    # The message of the exception may contain an argument.
    assert (line.outcome, line.reason) == (outcome, reason)


@pytest.mark.django_db(transaction=True)
async def test_a_call_without_end_is_a_timeout():
    import asyncio

    async def wait() -> None:
        """Wait."""
        await asyncio.Event().wait()

    made = server(wait, timeout=0.01)
    await real_client(server=made).acall_tool("wait", check=False)
    line = await Call.objects.aget()
    assert (line.outcome, line.reason) == ("timeout", "took longer than 0.01 seconds")


def test_wrong_arguments_are_told_by_their_paths():
    def buy(items: list[Item], note: str = "") -> None:
        """Buy."""

    made = server(buy)
    real_client(server=made).call_tool(
        "buy", {"items": [{"price": 1}, {"price": "x"}], "nte": ""}, check=False
    )
    line = the_call()
    assert line.outcome == "invalid"
    assert sorted(line.problems) == ["items[1].price", "nte"]
    assert line.argument_names == ["items", "nte"]


def test_what_is_not_there_and_what_is_hidden_differ_for_the_owner_alone():
    made = open_to_all()
    made.tool(name="secret", permission=IsStaff)(read)
    client = real_client(server=made, user=person())
    answers = []
    for name in ("nothing", "secret"):
        with pytest.raises(MCPError) as caught:
            client.call_tool(name)
        answers.append(caught.value.message.replace(name, "NAME"))
    assert answers[0] == answers[1]
    rows = Call.objects.order_by("id").values_list("component", "outcome", "code", "reason")
    assert list(rows) == [
        ("nothing", "unknown", -32602, ""),
        ("secret", "unknown", -32602, "hidden by IsStaff"),
    ]


def test_a_missing_scope_is_a_refusal():
    made = open_to_all()
    made.tool(scopes=["orders:write"])(read)
    with pytest.raises(AccessRefused):
        real_client(server=made, user=person(), scopes=["mcp"]).call_tool("read")
    line = the_call()
    assert (line.outcome, line.reason) == ("refused", "This needs the scope orders:write.")


@pytest.mark.parametrize("closed", ["the server", "the tool"])
def test_who_is_not_signed_in_is_refused(closed):
    is_server = closed == "the server"
    made = MCPServer("closed", permission=IsAuthenticated) if is_server else open_to_all()
    made.tool(permission=None if is_server else IsAuthenticated)(read)
    with pytest.raises(AccessRefused):
        real_client(server=made).call_tool("read")
    line = the_call()
    assert (line.component, line.outcome, line.user_key) == ("read", "refused", "anonymous")
    assert line.code == -31401


def test_a_row_that_was_deleted_while_its_call_ran_does_not_come_back():
    def forget() -> str:
        """Delete the rows of a user or tenant, that of this call too."""
        assert Call.objects.all().delete()[0] == 1
        return "done"

    assert real_client(server=server(forget)).call_tool("forget").text == "done"
    assert not Call.objects.exists()


@pytest.mark.parametrize(("revision", "code"), [("2025-11-25", -32002), ("2026-07-28", -32602)])
def test_an_error_has_the_code_that_its_client_was_sent(revision, code):
    made = open_to_all()
    made.resource("shop://orders/{number}")(lambda number: number)
    with pytest.raises(MCPError) as caught:
        real_client(server=made, protocol_version=revision).read_resource("shop://nothing")
    assert caught.value.code == the_call().code == code
    assert the_call().revision == revision


def test_who_is_turned_away_from_a_session_is_told_of_with_its_revision():
    guarded = MCPServer("guarded")
    guarded.tool()(read)
    user = person()
    mine = real_client(server=guarded, user=user, protocol_version="2025-06-18")
    assert mine.call_tool("read").text == "1"
    guarded.permission = IsStaff
    with pytest.raises(AccessRefused):
        mine.call_tool("read")
    assert list(Call.objects.order_by("id").values_list("outcome", "revision")) == [
        ("ok", "2025-06-18"),
        ("refused", "2025-06-18"),
    ]


def test_strangers_at_the_door_fill_no_table(monkeypatch):
    from mcp_django.execution import call_log

    monkeypatch.setattr(call_log.anonymous_limiter, "total", 3)
    monkeypatch.setattr(call_log.anonymous_limiter, "per_key", 3)
    call_log.anonymous_limiter.clear()
    made = MCPServer("closed", permission=IsAuthenticated)
    made.tool()(read)
    for _ in range(5):
        with pytest.raises(AccessRefused):
            real_client(server=made).call_tool("read")
    assert Call.objects.count() == 3


# Questions ------------------------------------------------------------------------------------


def ask(ctx: Context) -> str:
    """Ask."""
    return str(ctx.elicit("Really?", Reply).yes)


def test_each_round_is_a_line_where_rounds_are_requests():
    real_client(server=server(ask)).call_tool("ask", answers=[{"yes": True}])
    assert list(Call.objects.order_by("id").values_list("outcome", flat=True)) == ["asked", "ok"]


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_a_call_in_a_session_is_one_line_however_often_it_asks(revision):
    made = server(ask)
    client = real_client(server=made, protocol_version=revision)
    client.call_tool("ask", answers=[{"yes": True}])
    assert (the_call().outcome, the_call().revision) == ("ok", revision)


def test_who_declines_ends_it():
    real_client(server=server(ask)).call_tool("ask", answers=[DECLINE], check=False)
    assert Call.objects.latest("id").reason == "ElicitationDeclined"


# Another thread writes the row, and would wait for a transaction of this test.
@pytest.mark.django_db(transaction=True)
def test_a_question_that_nobody_answers_stays_one():
    client = real_client(server=server(ask), protocol_version="2025-11-25")
    client.call_tool("ask")
    del client
    line = the_call()
    assert (line.outcome, line.reason) in {("started", ""), ("asked", "the client did not answer")}


# Another thread writes the row, and would wait for a transaction of this test.
@pytest.mark.django_db(transaction=True)
def test_an_abandoned_call_is_logged_without_the_garbage_collector(call_log):
    """The questions, guard and task of a call do not keep a reference to the call."""
    made = open_to_all()
    made.tool(approval="caller", task="optional")(ask)
    client = real_client(server=made, user=person())
    gc.disable()
    try:
        opened = client._client.open(client._client.message("tools/call", {"name": "ask"}))
        opened.context(NullPort())
        assert opened.interaction is not None
        assert opened.approval_guard is not None
        del opened
        call_log.flush()
        assert (the_call().outcome, the_call().reason) == ("cancelled", "the call did not finish")
    finally:
        gc.enable()


def test_a_refused_request_is_freed_without_the_garbage_collector(monkeypatch):
    served = []

    class Kept(IncomingOnConnection):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            served.append(weakref.ref(self))

    monkeypatch.setattr(memory, "IncomingOnConnection", Kept)
    client = real_client(server=open_to_all(), user=person())._client
    gc.disable()
    try:
        assert "error" in client.open(client.message("tools/call", {"name": "unknown"}))
        assert [reference() for reference in served] == [None]
    finally:
        gc.enable()


# Writing --------------------------------------------------------------------------------------


def test_what_may_write_is_in_the_log_before_it_runs():
    def look() -> list[str]:
        """Look."""
        return list(Call.objects.values_list("outcome", flat=True))

    result = real_client(server=server(look)).call_tool("look")
    assert result.structured == ["started"]
    assert the_call().outcome == "ok"


def test_what_reads_is_in_the_log_afterwards():
    def look() -> list[str]:
        """Look."""
        return list(Call.objects.values_list("outcome", flat=True))

    result = real_client(server=server(look, read_only=True)).call_tool("look")
    assert result.structured == []


def test_the_line_outlives_what_its_tool_rolled_back():
    def fail() -> None:
        """Write and fail."""
        Group.objects.create(name="gone")
        raise ToolError("No")

    real_client(server=server(fail, atomic=True)).call_tool("fail", check=False)
    assert not Group.objects.exists()
    assert the_call().outcome == "error"


@pytest.fixture
def broken(monkeypatch):
    """A database that stores no row of the call log."""

    def refuse(*args: Any) -> int:
        raise DatabaseError("disk full")

    monkeypatch.setattr(CallLog, "insert", refuse)


async def write_later(name: str) -> str:
    """Write on a loop."""
    await Group.objects.acreate(name=name)
    return name


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("tool", [write, write_later])
def test_nothing_is_written_without_a_line(tool, call_log):
    added: list[Any] = []
    call_log.add = lambda row, receiver=None: added.append(row)
    try:
        with pytest.raises(MCPError) as caught:
            real_client(server=server(tool)).call_tool(tool.__name__, {"name": "crew"})
    finally:
        del call_log.add
    assert caught.value.code == -31503
    assert "call log" in caught.value.message
    assert not Group.objects.exists()
    # The rejected call is logged as soon as the log can be written.
    assert [row.fields["outcome"] for row in added] == ["refused"]


@pytest.mark.usefixtures("broken")
@override_settings(MCP_DJANGO={"AUDIT_STRICT": False})
def test_without_strictness_it_goes_on(call_log, monkeypatch, caplog):
    monkeypatch.setattr(call_log, "add", lambda line: None)
    real_client(server=server(write)).call_tool("write", {"name": "crew"})
    assert Group.objects.exists()
    assert "could not be logged" in caplog.text


@pytest.mark.usefixtures("broken")
def test_what_reads_needs_no_line(call_log, monkeypatch):
    added: list[Any] = []
    monkeypatch.setattr(call_log, "add", lambda row, receiver=None: added.append(row))
    result = real_client(server=server(read, read_only=True)).call_tool("read")
    assert not result.is_error
    assert [row.fields["outcome"] for row in added] == ["ok"]


@override_settings(MCP_DJANGO={"LOG_CALLS": False})
def test_the_log_can_be_switched_off(caplog):
    caplog.set_level(logging.INFO, "mcp_django.calls")
    real_client(server=server(write)).call_tool("write", {"name": "crew"})
    assert not Call.objects.exists()
    assert not caplog.records


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("read_only", [True, False])
async def test_an_async_tool_is_logged_too(read_only):
    async def add(n: int) -> int:
        """Add."""
        return n + 1

    await real_client(server=server(add, read_only=read_only)).acall_tool("add", {"n": 1})
    line = await Call.objects.aget()
    assert (line.outcome, line.writes) == ("ok", not read_only)


def test_a_call_in_a_transaction_shares_its_fate():
    made = server(read, read_only=True)
    with transaction.atomic():
        real_client(server=made).call_tool("read")
        transaction.set_rollback(True)
    assert not Call.objects.exists()


# Who else hears ---------------------------------------------------------------------------------


def test_signals_tell_of_a_call():
    heard: list[tuple[str, str]] = []

    def begun(call: Call, **kwargs: Any) -> None:
        heard.append(("started", call.outcome))

    def over(call: Call, **kwargs: Any) -> None:
        heard.append((call.component, call.outcome))

    call_started.connect(begun)
    call_finished.connect(over)
    try:
        real_client(server=server(write)).call_tool("write", {"name": "crew"})
    finally:
        call_started.disconnect(begun)
        call_finished.disconnect(over)
    assert heard == [("started", "started"), ("write", "ok")]


def test_a_receiver_that_fails_ends_nothing(caplog):
    def fail(**kwargs: Any) -> None:
        raise ValueError("mine")

    call_started.connect(fail)
    call_finished.connect(fail)
    try:
        result = real_client(server=server(write)).call_tool("write", {"name": "crew"})
    finally:
        call_started.disconnect(fail)
        call_finished.disconnect(fail)
    assert not result.is_error
    assert the_call().outcome == "ok"
    assert "mine" in caplog.text


def test_the_log_has_a_twin_without_values(caplog):
    caplog.set_level(logging.INFO, "mcp_django.calls")
    real_client(server=server(read)).call_tool("read", {"n": 47114711471147})
    (record,) = (logged for logged in caplog.records if logged.name == "mcp_django.calls")
    assert record.getMessage() == "tool read: ok"
    fields: dict[str, Any] = record.mcp_call
    assert (fields["server"], fields["outcome"], fields["arguments"]) == ("inline", "ok", None)
    assert "47114711471147" not in str(fields)


def test_a_name_that_was_made_up_is_one_line_of_the_log(caplog):
    caplog.set_level(logging.INFO, "mcp_django.calls")
    odd = "read\nERROR all is lost\x1b[31m\u202e"
    with pytest.raises(MCPError):
        real_client(server=server(read)).call_tool(odd, {})
    (record,) = (logged for logged in caplog.records if logged.name == "mcp_django.calls")
    written = "read\\u{a}ERROR all is lost\\u{1b}[31m\\u{202e}"
    assert record.getMessage() == f"tool {written}: unknown"
    assert the_call().component == written


def test_a_trace_is_known_by_its_id():
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    message = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    client = real_client(server=server(read))
    body = client._client.message("tools/call", {"name": "read", "arguments": {}})
    body["params"]["_meta"].update(message)
    client._client.send(body)
    assert the_call().trace_id == trace


def test_what_reads_another_resource_is_one_line():
    made = open_to_all()
    made.resource("shop://about")(lambda: "about")

    def about(ctx: Context) -> str:
        """Read about it."""
        return str(ctx.read_resource("shop://about"))

    made.tool(read_only=True)(about)
    real_client(server=made).call_tool("about")
    assert the_call().component == "about"


def test_a_call_that_nobody_runs_is_told_of():
    client = real_client(server=server(read, read_only=True))
    body = client._client.message("tools/call", {"name": "read", "arguments": {}})
    opened = client._client.open(body)
    assert not Call.objects.exists()
    from mcp_django.storage.call_rows import call_log

    added: list[Any] = []
    call_log.add = lambda row, receiver=None: added.append(row)
    try:
        del opened
    finally:
        del call_log.add
    assert [row.fields["outcome"] for row in added] == ["cancelled"]


async def test_what_was_given_up_before_it_began_writes_nothing(transactional_db):
    client = real_client(server=server(write))
    body = client._client.message("tools/call", {"name": "write", "arguments": {"name": "late"}})
    opened = await sync_to_async(client._client.open)(body)
    await invoke.timeout_result(opened)
    # The thread of the call resumes after the timeout.
    with pytest.raises(Busy):
        await sync_to_async(invoke.run)(opened)
    assert [call.outcome async for call in Call.objects.all()] == ["timeout"]
    assert not await Group.objects.aexists()
