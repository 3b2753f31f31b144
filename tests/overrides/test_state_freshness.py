"""When a process reads the overrides, what that costs, and what applies when it cannot."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import Error, InterfaceError, OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from mcp_django.models import Call, Component, Topic
from mcp_django.overrides.state import is_in_transaction, override_cache, override_version
from mcp_django.server import all_servers
from mcp_django.storage import cache
from mcp_django.storage.cleanup import delete_expired
from mcp_django.storage.databases import seconds_ago
from mcp_django.storage.versions import OVERRIDES
from tests.kit.drivers import PATIENCE, Answer, message
from tests.overrides.site import a_second_later, decide, decide_elsewhere, switch_off
from tests.transports.mounts import wsgi

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("unpinned")]
CALL = message("tools/call", {"name": "spade", "arguments": {}})
LIST = message("tools/list")


@pytest.fixture
def shed(settings):
    """Yield a server with two tools, at an address."""
    from tests.overrides import urls

    settings.ROOT_URLCONF = "tests.overrides.urls"
    yield urls.shed
    urls.shed.overrides.reset()


def ask(body: dict[str, Any]) -> Answer:
    return wsgi("/shed/mcp", body)


def listed() -> list[str]:
    return [tool["name"] for tool in ask(LIST).json()["result"]["tools"]]


def queries(work: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as captured_queries:
        work()
    return len(captured_queries)


@contextmanager
def away(*tables: str, error: type[Error] = OperationalError) -> Iterator[None]:
    """Let all queries fail, or those of these tables."""

    def refuse(execute: Any, sql: str, *rest: Any) -> Any:
        if not tables or any(table in sql for table in tables):
            raise error("gone")
        return execute(sql, *rest)

    with connection.execute_wrapper(refuse):
        yield


# What it costs ------------------------------------------------------------------------------------


def test_a_call_asks_the_database_once_a_second_at_most(shed):
    ask(CALL)
    assert queries(lambda: ask(CALL)) == 0
    a_second_later()
    assert queries(lambda: ask(CALL)) == 1
    assert queries(lambda: ask(CALL)) == 0


@pytest.mark.usefixtures("call_log")
def test_the_owner_learns_that_a_requested_tool_is_disabled(shed):
    decide("shed", "spade", is_enabled=False)
    missing = message("tools/call", {"name": "spadee", "arguments": {}})
    answers = [ask(body).json()["error"] for body in (CALL, missing)]
    assert answers[1]["message"].replace("spadee", "spade") == answers[0]["message"]
    assert [*Call.objects.order_by("pk").values_list("component", "outcome", "reason")] == [
        ("spade", "unknown", "hidden by the admin, where it is disabled"),
        ("spadee", "unknown", ""),
    ]


def test_a_version_in_use_is_confirmed(shed):
    ask(CALL)
    # The version was read, and has not been used since.
    assert queries(override_version.confirm) == 0
    ask(CALL)
    decide_elsewhere("shed", "spade", is_enabled=False)
    assert queries(override_version.confirm) == 1
    assert queries(override_version.confirm) == 0
    assert "error" in ask(CALL).json()


def test_a_thread_confirms_it(shed, settings, monkeypatch):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 0.01}
    monkeypatch.setattr(cache, "is_inline", lambda: False)
    confirmed = threading.Event()

    def confirm(self: object) -> int:
        confirmed.set()
        return 0

    monkeypatch.setattr(type(override_version), "confirm", confirm)
    ask(CALL)
    assert confirmed.wait(PATIENCE)


def test_a_list_asks_the_database_once_always(shed):
    ask(LIST)
    assert queries(lambda: ask(LIST)) == 1
    assert queries(lambda: ask(LIST)) == 1


def test_decisions_are_read_once_for_all_servers_and_again_when_there_are_new_ones(shed):
    for server in all_servers():
        server.refresh()
    assert queries(lambda: [server.refresh() for server in all_servers()]) == 0
    decide("shed", "rake", is_enabled=False)
    # One query of the version, and one for each of five tables.
    assert queries(lambda: [server.refresh() for server in all_servers()]) == 6


# What it sees -------------------------------------------------------------------------------------


def test_what_is_switched_off_is_unknown_and_in_no_list(shed):
    unknown = ask(message("tools/call", {"name": "anvil", "arguments": {}})).json()["error"]
    decide("shed", "spade", is_enabled=False)
    assert listed() == ["rake"]
    error = ask(CALL).json()["error"]
    assert error == {**unknown, "message": unknown["message"].replace("anvil", "spade")}
    decide("shed", "spade", is_enabled=True)
    assert listed() == ["rake", "spade"]


def test_what_another_process_decides_is_seen_in_a_list_at_once(shed):
    assert listed() == ["rake", "spade"]
    decide_elsewhere("shed", "spade", is_enabled=False)
    assert listed() == ["rake"]


def test_what_another_process_decides_is_seen_by_a_call_a_second_later(shed):
    assert "result" in ask(CALL).json()
    decide_elsewhere("shed", "spade", is_enabled=False)
    a_second_later()
    assert "error" in ask(CALL).json()


def test_what_was_decided_before_anybody_told_of_it_holds_too(shed):
    Component.objects.create(
        server="shed", kind="tool", key="spade", name="spade", is_enabled=False
    )
    assert listed() == ["rake"]


def test_a_decision_outlives_the_sweeping_of_what_changed(shed):
    decide("shed", "spade", is_enabled=False)
    Topic.objects.update(changed_at=seconds_ago(365 * 24 * 3600))
    delete_expired()
    assert listed() == ["rake"]
    assert Topic.objects.filter(pk=OVERRIDES.digest).exists()


def test_a_decision_that_is_taken_back_with_its_transaction_was_none(shed):
    ask(CALL)
    with transaction.atomic():
        decide("shed", "spade", is_enabled=False)
        shed.refresh()
        assert list(shed.catalog.tools) == ["rake"]
        transaction.set_rollback(True)
    shed.refresh()
    assert list(shed.catalog.tools) == ["spade", "rake"]


def test_a_decision_counts_in_the_transaction_of_its_rows(shed):
    with transaction.atomic():
        decide("shed", "spade", is_enabled=False)
        transaction.set_rollback(True)
    assert not Topic.objects.filter(pk=OVERRIDES.digest).exists()


def test_a_server_that_is_switched_off_refuses_everybody(shed):
    switch_off("shed")
    for body in (CALL, LIST, message("server/discover")):
        answer = ask(body)
        assert answer.status == 403
        assert b"disabled" in answer.body


async def test_nothing_is_asked_on_an_event_loop(shed):
    with pytest.raises(SynchronousOnlyOperation):
        override_cache.overrides_at((7, None, 0))


async def test_a_server_of_which_nothing_is_decided_needs_no_database_on_an_event_loop(shed):
    await sync_to_async(ask)(CALL)
    override_version.pin()
    # Drop what the process knew before.
    shed.refresh()
    assert "spade" in shed.catalog.tools


# When it cannot be seen ---------------------------------------------------------------------------


def test_without_a_database_that_says_what_is_off_nothing_is_served(shed):
    with away():
        for body in (CALL, LIST):
            answer = ask(body)
            assert answer.status == 503
            assert "spade" not in answer.body.decode()


def test_rows_that_cannot_be_read_are_as_bad_as_none(shed):
    with away("mcp_django_component"):
        assert ask(CALL).status == 503


# A connection that was closed before raises another error.
@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_what_was_known_goes_on_while_the_database_is_away(shed, caplog, error):
    decide("shed", "spade", is_enabled=False)
    assert listed() == ["rake"]
    with away(error=error):
        assert listed() == ["rake"]
        a_second_later()
        assert ask(CALL).json()["error"]["code"] == -32602
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_what_was_known_goes_on_while_new_decisions_cannot_be_read(shed, caplog):
    decide("shed", "spade", is_enabled=False)
    assert listed() == ["rake"]
    decide_elsewhere("shed", "rake", is_enabled=False)
    with away("mcp_django_component"):
        assert listed() == ["rake"]
    assert "Cannot load the overrides" in caplog.text
    assert "error" in ask(LIST).json()


def test_a_site_that_is_not_migrated_yet_serves_what_code_says(shed, monkeypatch, caplog):
    monkeypatch.setattr(connection.introspection, "table_names", list)
    with away("mcp_django_topic"):
        assert listed() == ["rake", "spade"]


def test_a_site_without_a_database_serves_what_code_says(shed, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "ENGINE", "django.db.backends.dummy")
    with away():
        assert listed() == ["rake", "spade"]


@pytest.mark.parametrize(
    "written",
    [{"rate": "often"}, {"permissions": ["nodot"]}, {"scopes": ['"']}, {"approval": "nobody"}],
)
def test_a_row_that_means_nothing_switches_off_its_own_component_alone(shed, caplog, written):
    decide("shed", "spade", **written)
    assert listed() == ["rake"]
    assert "'spade' is disabled" in caplog.text


def test_nothing_of_an_override_is_in_what_a_client_gets(shed):
    decide("shed", "spade", groups=["gardeners"], rate="5/m")
    assert "gardeners" not in json.dumps(ask(LIST).json())


async def test_a_request_on_an_event_loop_makes_no_connection_to_look_at():
    # Each task has connections of its own, and opening one costs as much as a call.
    assert not is_in_transaction()
    assert not connections.all(initialized_only=True)


def test_a_transaction_of_the_rows_is_seen():
    with transaction.atomic():
        assert is_in_transaction()
    assert not is_in_transaction()
