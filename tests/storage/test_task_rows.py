"""Rows of tasks: valid changes of status, and who may write (TKD-5)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models.functions import Now

from mcp_django.auth.principal import Principal, anonymous_principal, principal_for
from mcp_django.exceptions import TooManyTasks
from mcp_django.models import Task
from mcp_django.storage import cleanup, task_rows
from mcp_django.storage.databases import seconds_ago
from tests.kit.servers import person
from tests.spec import spec

pytestmark = pytest.mark.django_db

ASKED = {"name": {"method": "elicitation/create", "params": {"message": "Name?"}}}


def create(principal: Principal | None = None, **details: Any) -> Task:
    """Create a task that no worker has started."""
    given: dict[str, Any] = {
        "server": "shop",
        "tool": "count",
        "arguments": b"{}",
        "principal": principal or anonymous_principal(),
        "user": None,
        "capabilities": {},
        "client_info": None,
        "trace": {},
        "protocol_version": "2026-07-28",
        "ttl": timedelta(hours=1),
        "poll": timedelta(seconds=2),
    }
    return task_rows.create_task(**given | details)


def taken(**details: Any) -> Task:
    """Create a task that a worker has started."""
    row = task_rows.start_run(create(**details).pk, 1)
    assert row is not None
    return row


def find_task(row: Task) -> Task | None:
    return task_rows.find_task(row.pk, server=row.server, principal_key=row.principal)


def lose_lease(row: Task) -> None:
    Task.objects.filter(pk=row.pk).update(lease_until=seconds_ago(1))


def expire(row: Task) -> None:
    Task.objects.filter(pk=row.pk).update(expires_at=Now())


@spec("TKE-10", "TKD-9")
def test_a_task_is_found_by_its_owner_on_its_server():
    ada, ben = (principal_for(person(name)) for name in ("ada", "ben"))
    row = create(ada)
    assert len(row.pk) >= 43
    assert task_rows.find_task(row.pk, server="shop", principal_key=ada.key) == row
    assert task_rows.find_task(row.pk, server="shop", principal_key=ben.key) is None
    assert task_rows.find_task(row.pk, server="desk", principal_key=ada.key) is None
    assert list(task_rows.tasks_of_principal("shop", ada.key)) == [row]
    assert not task_rows.tasks_of_principal("shop", ben.key)


def test_a_late_task_is_read_while_its_own_run_holds_the_database():
    row = taken(principal=anonymous_principal())
    lose_lease(row)

    def locked(execute: Any, sql: str, *args: Any) -> Any:
        if sql.startswith("UPDATE"):
            raise OperationalError("database is locked")
        return execute(sql, *args)

    with connection.execute_wrapper(locked):
        if connection.vendor == "sqlite":
            task = find_task(row)
            assert task is not None
            assert task.status == "working"
        else:
            with pytest.raises(OperationalError):
                find_task(row)
    task = find_task(row)
    assert task is not None
    assert task.status == "failed"


def test_times_are_milliseconds():
    row = create(ttl=timedelta(seconds=1.5), poll=timedelta(seconds=0.25))
    assert (row.ttl_ms, row.poll_ms) == (1500, 250)
    assert row.expires_at - row.created_at == pytest.approx(
        timedelta(seconds=1.5), abs=timedelta(seconds=1)
    )


def test_a_run_is_taken_once():
    row = create()
    assert task_rows.start_run(row.pk, 2) is None
    assert task_rows.start_run(row.pk, 1) is not None
    assert task_rows.start_run(row.pk, 1) is None


@spec("TKD-5")
def test_what_is_over_stays_as_it_is():
    done = taken()
    assert task_rows.finish_task(done.pk, 1, result={"content": []}, message="")
    assert not task_rows.cancel_task(done)
    assert done.status == "completed"
    assert not task_rows.fail_task(done.pk, "late")
    assert not task_rows.set_status_message(done.pk, 1, "late")
    gone = taken()
    assert task_rows.cancel_task(gone)
    assert not task_rows.finish_task(gone.pk, 1, result={"content": []})
    assert not task_rows.renew_lease(gone.pk, 1)
    gone.refresh_from_db()
    assert (gone.status, gone.result) == ("cancelled", None)


@spec("TKE-7")
def test_answers_are_taken_one_by_one_and_others_ignored():
    row = taken()
    two = {**ASKED, "age": {"method": "elicitation/create", "params": {}}}
    assert task_rows.wait_for_responses(row.pk, 1, two, "state")
    row.refresh_from_db()
    assert (row.status, row.lease_until) == ("input_required", None)
    assert not task_rows.store_responses(row, {"nobody": {}})
    assert not task_rows.store_responses(row, {"name": {"action": "accept"}, "nobody": {}})
    assert (row.status, list(row.questions)) == ("input_required", ["age"])
    assert not task_rows.store_responses(row, {"name": {"action": "decline"}})
    assert task_rows.store_responses(row, {"age": {"action": "cancel"}})
    assert (row.status, row.run, row.questions) == ("working", 2, {})
    assert row.answers == {"name": {"action": "accept"}, "age": {"action": "cancel"}}
    assert not task_rows.store_responses(row, {"age": {}})


def test_two_requests_at_once_answer_both_their_questions():
    row = taken()
    task_rows.wait_for_responses(row.pk, 1, {**ASKED, "age": ASKED["name"]}, "")
    first, second = Task.objects.get(pk=row.pk), Task.objects.get(pk=row.pk)
    assert not task_rows.store_responses(first, {"name": {"n": 1}})
    assert task_rows.store_responses(second, {"age": {"n": 2}})
    assert second.answers == {"name": {"n": 1}, "age": {"n": 2}}


@spec("TKE-7")
def test_no_key_is_used_twice_in_a_task():
    row = taken()
    seen: list[str] = []
    for run in range(1, 5):
        assert task_rows.wait_for_responses(row.pk, run, ASKED | {"name_2": ASKED["name"]}, "")
        row.refresh_from_db()
        seen += row.questions
        assert {row.keys[key] for key in row.questions} == {"name", "name_2"}
        assert task_rows.store_responses(row, {key: {} for key in row.questions})
        assert task_rows.start_run(row.pk, row.run) is not None
    assert len(seen) == len(set(seen)) == 8
    assert seen[0] == "name"


def test_an_earlier_run_writes_no_more():
    row = taken()
    task_rows.wait_for_responses(row.pk, 1, ASKED, "")
    row.refresh_from_db()
    assert task_rows.store_responses(row, {"name": {}})
    assert task_rows.start_run(row.pk, 2) is not None
    assert not task_rows.finish_task(row.pk, 1, result={})
    assert not task_rows.wait_for_responses(row.pk, 1, ASKED, "")
    assert not task_rows.renew_lease(row.pk, 1)
    assert task_rows.filter_wanted({row.pk: 1}) == set()
    assert task_rows.filter_wanted({row.pk: 2}) == {row.pk}


def test_whoever_looks_closes_what_its_worker_left():
    row = taken()
    lose_lease(row)
    task = task_rows.find_task(row.pk, server="shop", principal_key="anonymous")
    assert task is not None
    assert (task.status, task.error) == (
        "failed",
        {"code": -32603, "message": task_rows.WORKER_GONE},
    )
    assert not task_rows.finish_task(row.pk, 1, result={})


def test_what_nobody_took_yet_has_no_lease_to_lose():
    row = create()
    assert task_rows.close_expired() == 0
    assert task_rows.find_task(row.pk, server="shop", principal_key="anonymous").status == "working"


@spec("TKE-10", "TKD-7")
def test_a_task_over_its_time_fails_and_is_swept_up_later():
    row = taken()
    expire(row)
    assert cleanup.delete_expired() == 0
    task = task_rows.find_task(row.pk, server="shop", principal_key="anonymous")
    assert task is not None
    assert (task.status, task.status_message) == ("failed", task_rows.EXPIRED)
    Task.objects.update(expires_at=seconds_ago(cleanup.GRACE_SECONDS + 1))
    assert task_rows.find_task(row.pk, server="shop", principal_key="anonymous") is None
    assert cleanup.delete_expired() == 1


def test_a_result_may_have_a_nul_in_it():
    row = taken()
    assert task_rows.set_status_message(row.pk, 1, "a\0b")
    assert task_rows.finish_task(row.pk, 1, result={"content": [{"type": "text", "text": "a\0b"}]})
    row.refresh_from_db()
    assert row.result["content"][0]["text"] == "a\0b"
    assert row.status_message == "a\ufffdb"


@spec("TKD-10")
def test_a_caller_has_so_many_tasks_and_no_more(settings):
    settings.MCP_DJANGO = {"TASKS_PER_PRINCIPAL": 2}
    first, _ = create(), create()
    with pytest.raises(TooManyTasks, match="2 open tasks"):
        create()
    task_rows.cancel_task(first)
    create()
    create(principal_for(person()))


def test_each_change_is_counted():
    from mcp_django.storage import versions

    row = taken()
    topic = task_rows.task_topic(row.pk)
    task_rows.set_status_message(row.pk, 1, "half")
    task_rows.wait_for_responses(row.pk, 1, ASKED, "")
    row.refresh_from_db()
    task_rows.store_responses(row, {"name": {}})
    task_rows.cancel_task(row)
    assert versions.read_versions([topic]) == {topic: 4}
