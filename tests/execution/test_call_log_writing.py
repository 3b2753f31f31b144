"""How rows are written to the call log: without delay for read-only calls, and without loss."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from mcp_django.models import Call
from mcp_django.storage import databases, writer
from mcp_django.storage.call_rows import CALL_ROWS, CallLog, CallRow
from mcp_django.transports.drain import Drain
from tests.kit.drivers import PATIENCE
from tests.kit.servers import open_to_all, real_client

pytestmark = pytest.mark.django_db(transaction=True)


def line(component: str = "read", **fields: Any) -> CallRow:
    """Return a row of a call that has ended."""
    values = {"at": timezone.now(), "server": "shelf", "kind": "tool", "outcome": "ok"}
    given = {**values, "component": component, "user_key": "anonymous", **fields}
    return CallRow({**given, "token": secrets.token_hex(8)})


def written() -> list[str]:
    return list(Call.objects.order_by("id").values_list("component", flat=True))


@pytest.fixture
def log(monkeypatch):
    """A call log as in a process that serves, which waits long before it writes."""
    monkeypatch.setattr(CallLog, "is_inline", lambda self: False)
    monkeypatch.setattr(writer, "FLUSH_SECONDS", 3600.0)
    made = CallLog()
    made._flush_delay = 3600.0
    yield made
    made.close()


class Away:
    """A database that fails this many times; ``failed`` is released each time."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.failed = threading.Semaphore(0)
        self._write = CALL_ROWS.write

    def __call__(self, rows: Any, *, again: bool) -> Any:
        if self.times:
            self.times -= 1
            self.failed.release()
            raise OperationalError("gone")
        return self._write(rows, again=again)


def test_a_line_waits_for_others(log):
    for name in "abc":
        log.add(line(name))
    assert log.flush()
    assert written() == ["a", "b", "c"]


def test_a_full_buffer_waits_no_longer(log, monkeypatch):
    monkeypatch.setattr(writer, "FLUSH_ROWS", 3)
    wrote = threading.Event()
    write = CALL_ROWS.write

    def tell(rows: Any, *, again: bool) -> Any:
        transaction.on_commit(wrote.set)
        return write(rows, again=again)

    monkeypatch.setattr(CALL_ROWS, "write", tell)
    for name in "abc":
        log.add(line(name))
    assert wrote.wait(PATIENCE)
    assert written() == ["a", "b", "c"]


def test_what_reads_does_not_wait_for_its_line(log, monkeypatch):
    from mcp_django.execution import call_log

    monkeypatch.setattr(call_log, "call_log", log)
    made = open_to_all()
    made.tool(name="read", read_only=True)(lambda: "read")
    made.tool(name="write")(lambda: "written")
    client = real_client(server=made)
    client.call_tool("read")
    client.call_tool("write")
    # The call that may write is stored; the read-only call before it is not.
    assert written() == ["write"]
    assert log.flush()
    assert sorted(written()) == ["read", "write"]


def test_lines_survive_a_database_that_is_away(log, monkeypatch, caplog):
    away = Away(2)
    monkeypatch.setattr(CALL_ROWS, "write", away)
    log.add(line("a"))
    assert log.flush()
    assert away.failed.acquire(timeout=PATIENCE)
    log.add(line("b"))
    assert log.flush()
    assert away.failed.acquire(timeout=PATIENCE)
    assert "2 rows wait, 0 were lost" in caplog.text
    assert log.flush()
    assert written() == ["a", "b"]


def test_of_too_many_lines_the_oldest_go(log, monkeypatch, caplog):
    monkeypatch.setattr(writer, "MAX_WAITING", 3)
    monkeypatch.setattr(CALL_ROWS, "write", Away(1))
    for name in "abc":
        log.add(line(name))
    assert log.flush()
    for name in "de":
        log.add(line(name))
    assert log.flush()
    assert written() == ["c", "d", "e"]
    assert log.lost == 2


def test_a_line_that_cannot_be_kept_takes_no_other_with_it(log, caplog):
    log.add(line("a"))
    log.add(line("b", server=None))
    log.add(line("c"))
    assert log.flush()
    assert written() == ["a", "c"]
    assert "cannot be stored" in caplog.text


def test_the_end_of_a_call_is_written_once_its_beginning_is(log):
    begun = line("write", outcome="started")
    log.insert(begun)
    log.add(begun._replace(fields={**begun.fields, "outcome": "cancelled"}, is_end=True))
    assert log.flush()
    assert Call.objects.get().outcome == "cancelled"


def test_the_end_of_a_call_leaves_what_was_known_before_as_it_is(log):
    begun = line("write", outcome="started", user_name="ann")
    log.insert(begun)
    # The user's name and key are removed while the call runs.
    Call.objects.update(user_name="", user_key="forgotten")
    ended = {**begun.fields, "outcome": "ok", "ms": 2.5}
    log.add(begun._replace(fields=ended, is_end=True))
    assert log.flush()
    row = Call.objects.get()
    assert (row.outcome, row.ms, row.user_name, row.user_key) == ("ok", 2.5, "", "forgotten")


def test_who_wants_to_be_told_of_a_call_does_not_wait_for_its_line(log):
    event = threading.Event()
    log.add(line("a"))
    log.add(line("b"), lambda fields: event.set())
    assert event.wait(PATIENCE)
    assert written() == []
    assert log.flush()
    assert written() == ["a", "b"]


def test_what_a_line_leaves_out_is_as_the_model_has_it(log):
    log.add(line("a"))
    log.add(line("b", arguments={"name": "ümlaut"}, argument_names=["name"], writes=True))
    assert log.flush()
    first, second = Call.objects.order_by("id")
    assert (first.origin, first.arguments, first.problems, first.writes) == (
        "client",
        None,
        [],
        False,
    )
    assert (second.arguments, second.argument_names) == ({"name": "ümlaut"}, ["name"])


def test_a_process_that_stops_writes_what_there_is(log):
    done = threading.Event()
    log.add(line("a"))
    log.flush_and_stop(done.set)
    assert done.wait(PATIENCE)
    assert written() == ["a"]
    log.add(line("b"))
    assert log.flush()
    assert written() == ["a", "b"]


def test_a_process_waits_for_its_lines_before_it_lets_the_server_go(log, monkeypatch):
    from mcp_django.transports import drain

    monkeypatch.setattr(drain, "call_log", log)
    monkeypatch.setattr(drain, "row_writer", writer.BatchWriter("none"))
    held = threading.Event()
    write = CALL_ROWS.write

    def wait(rows: Any, *, again: bool) -> Any:
        assert held.wait(PATIENCE)
        return write(rows, again=again)

    monkeypatch.setattr(CALL_ROWS, "write", wait)
    log.add(line("a"))
    stopping = Drain()
    stopping.begin()
    assert stopping._held
    held.set()
    assert log.flush()
    assert not stopping._held


SCRIPT = """
import django
django.setup()
from django.utils import timezone
from mcp_django.storage.call_rows import CallRow, call_log
fields = dict(at=timezone.now(), server="s", kind="tool", user_key="anonymous", outcome="ok")
for name in ("a", "b"):
    call_log.add(CallRow({**fields, "component": name, "token": name}))
"""


@pytest.mark.outside
def test_the_end_of_a_process_loses_nothing():
    run(SCRIPT)
    assert sorted(written()) == ["a", "b"]


KILLED = """
import os, django
django.setup()
from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.auth.principal import anonymous_principal
from mcp_django.protocol.revisions import LATEST
from mcp_django.transports.memory import LocalClient
server = MCPServer("doomed", permission=AllowAny)

@server.tool
def write() -> None:
    "Write."
    os._exit(9)

client = LocalClient(server, anonymous_principal(), revision=LATEST, client_info={})
client.request("tools/call", {"name": "write", "arguments": {}})
"""


READS_AFTER_A_WRITE = """
import threading, django
django.setup()
from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.auth.principal import anonymous_principal
from mcp_django.protocol.revisions import LATEST
from mcp_django.storage.call_rows import CALL_ROWS
from mcp_django.transports.memory import LocalClient
server = MCPServer("busy", permission=AllowAny)
stored, store = threading.Semaphore(0), CALL_ROWS.write

def write_rows(rows, *, again):
    from django.db import transaction
    outcomes = store(rows, again=again)
    transaction.on_commit(lambda: stored.release(len(rows)))
    return outcomes

CALL_ROWS.write = write_rows

@server.tool
def write() -> None:
    "Write."

@server.tool(read_only=True)
def read() -> None:
    "Read."

client = LocalClient(server, anonymous_principal(), revision=LATEST, client_info={})
# A call that may write has two rows: the beginning, and the end.
for name, rows in (("read", 1), ("write", 2), ("read", 1), ("write", 2), ("read", 1)):
    client.request("tools/call", {"name": name, "arguments": {}})
    for _ in range(rows):
        assert stored.acquire(timeout=30), "not written"
import os
os._exit(0)
"""


@pytest.mark.outside
def test_calls_are_in_the_log_while_the_process_goes_on():
    run(READS_AFTER_A_WRITE)
    assert [*Call.objects.order_by("id").values_list("component", "outcome")] == [
        ("read", "ok"),
        ("write", "ok"),
        ("read", "ok"),
        ("write", "ok"),
        ("read", "ok"),
    ]


@pytest.mark.outside
def test_a_process_that_is_killed_leaves_what_it_had_begun():
    run(KILLED, expected=9)
    row = Call.objects.get()
    assert (row.component, row.outcome, row.ms) == ("write", "started", None)


def run(script: str, *, expected: int = 0) -> None:
    """Run a script in another process, on the database of the test."""
    if connection.vendor != "sqlite":
        pytest.skip("Only a file is found by another process.")
    environment = {**os.environ, "MCP_TEST_DATABASE": str(connection.settings_dict["NAME"])}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == expected, done.stderr.decode()


def test_what_goes_wrong_around_the_writing_does_not_end_it(log, monkeypatch):
    def close() -> None:
        raise RuntimeError("no connection for you")

    with monkeypatch.context() as broken:
        broken.setattr(databases, "close_old_connections", close)
        log.add(line("a"))
        assert log.flush()
    assert log.lost == 1
    log.add(line("b"))
    assert log.flush()
    assert written() == ["b"]


def test_a_receiver_that_fails_keeps_no_line_back(log, caplog):
    def refuse(fields: Any) -> None:
        raise ValueError("not today")

    log.add(line("a"), refuse)
    log.add(line("b"))
    assert log.flush()
    assert written() == ["a", "b"]
    assert "A receiver of a call record failed" in caplog.text


def test_a_thread_that_is_gone_is_replaced(log):
    gone = threading.Thread(target=int)
    gone.start()
    gone.join()
    log._thread = gone
    log.add(line("a"))
    assert log.flush()
    assert written() == ["a"]
