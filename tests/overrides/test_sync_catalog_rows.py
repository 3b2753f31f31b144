"""Who writes the rows of servers and components, and when; under a test runner only the tests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, transaction
from django.test import Client

from mcp_django import MCPServer, server
from mcp_django.models import Component, PromptText, Server, Skill, ViewExposure
from mcp_django.overrides import sync as module
from mcp_django.overrides.sync import CHECK_SECONDS, catalog_rows
from mcp_django.storage import databases
from tests.admin.staff import superuser
from tests.overrides.site import server_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("few_servers", "unpinned")]
PAGE = "/admin/login/"


class Site:
    """A process that serves ``shop``; tests hold its clock and the work of the database thread."""

    def __init__(self) -> None:
        self.shop = server_of("shop", "sell")
        self.waiting: list[Callable[[], object]] = []
        self.now = 1000.0

    def submit(self, work: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Queue the work in place of the database thread."""
        assert not args
        assert not kwargs
        self.waiting.append(work)

    def work(self) -> None:
        """Do the queued work."""
        while self.waiting:
            self.waiting.pop(0)()


def keys() -> set[str]:
    """Return the keys of the shop's rows."""
    return set(Component.objects.filter(server="shop").values_list("key", flat=True))


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"
    catalog_rows.reset()
    yield
    catalog_rows.reset()


@pytest.fixture
def serving(monkeypatch):
    """Return a process that does not run under a test runner."""
    site = Site()
    server._servers.add(site.shop)
    monkeypatch.setattr(databases, "is_under_test", lambda: False)
    monkeypatch.setattr(databases, "submit_to_db_thread", site.submit)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: site.now))
    return site


# When the site is migrated --------------------------------------------------------------------


def test_a_site_that_is_migrated_has_its_rows(serving):
    call_command("migrate", verbosity=0)
    assert keys() == {"sell"}
    assert Server.objects.filter(name="shop").exists()


def test_migrating_marks_nothing_as_missing(serving):
    Component.objects.create(server="by the URLconf", kind="tool", key="kept", name="kept")
    call_command("migrate", verbosity=0)
    assert Component.objects.get(key="kept").missing_since is None
    Client().get(PAGE)
    serving.work()
    assert Component.objects.get(key="kept").missing_since is not None


class Elsewhere:
    """A router that puts the rows of components in another database."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        """Return that database for the rows of components."""
        return "elsewhere" if model is Component else None


def test_another_database_is_migrated_without_rows(serving, settings):
    settings.DATABASE_ROUTERS = [f"{__name__}.Elsewhere"]
    call_command("migrate", verbosity=0)
    assert keys() == set()


def test_a_table_that_lacks_a_column_does_not_break_migrating(serving, caplog):
    rename = "ALTER TABLE mcp_django_component RENAME COLUMN {} TO {}"
    with connection.cursor() as cursor:
        cursor.execute(rename.format("origin", "later"))
        call_command("migrate", verbosity=0)
        assert warnings(caplog) == 1
        # PostgreSQL would refuse this if the error had ended the transaction of others.
        cursor.execute(rename.format("later", "origin"))
    assert keys() == set()


# When a process serves ------------------------------------------------------------------------


def test_the_first_request_has_the_rows_written_and_does_not_write_itself(serving):
    Client().get(PAGE)
    assert keys() == set()
    assert len(serving.waiting) == 1
    serving.work()
    assert keys() == {"sell"}


@pytest.mark.django_db(transaction=True)
def test_the_thread_of_the_store_writes(monkeypatch, settings):
    # The database of the test is dropped at its end.
    settings.MCP_DJANGO = {"KEEP_CONNECTIONS": False}
    shop = server_of("shop", "sell")
    server._servers.add(shop)
    monkeypatch.setattr(databases, "is_under_test", lambda: False)
    with transaction.atomic():
        # The request runs in a transaction of the site, which is never committed.
        Client().get(PAGE)
        transaction.set_rollback(True)
    # The thread works in order, so all earlier work is done after this.
    databases._db_executor().submit(int).result(timeout=5)
    assert keys() == {"sell"}


def test_the_catalog_is_compared_once_a_minute_and_without_a_query(
    serving, django_assert_num_queries
):
    Client().get(PAGE)
    serving.work()
    serving.shop.tool("lend")(lambda: "")
    serving.now += CHECK_SECONDS - 1
    Client().get(PAGE)
    assert serving.waiting == []
    serving.now += 2
    Client().get(PAGE)
    serving.work()
    assert keys() == {"sell", "lend"}
    serving.now += CHECK_SECONDS
    Client().get(PAGE)
    assert len(serving.waiting) == 1
    with django_assert_num_queries(0):
        serving.work()


def test_a_change_of_a_component_is_written_as_well(serving):
    Client().get(PAGE)
    serving.work()
    serving.shop.unregister(serving.shop.tools["sell"])
    serving.shop.tool("sell", read_only=True)(lambda: "")
    serving.now += CHECK_SECONDS
    Client().get(PAGE)
    serving.work()
    assert Component.objects.get(server="shop").is_read_only


def test_no_more_than_one_comparison_waits(serving):
    for _ in range(3):
        Client().get(PAGE)
        serving.now += CHECK_SECONDS
    assert len(serving.waiting) == 1


def test_a_forked_process_begins_anew(serving):
    Client().get(PAGE)
    # The thread that would have done the work stays with the parent.
    serving.waiting.clear()
    catalog_rows.reset()
    Client().get(PAGE)
    serving.work()
    assert keys() == {"sell"}


def test_a_process_that_ends_answers_all_the_same(serving, monkeypatch):
    def refuse(*args: Any) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(databases, "submit_to_db_thread", refuse)
    assert Client().get(PAGE).status_code == 200


# When the admin changes the catalog -----------------------------------------------------------

TOLD = {"server": "shop", "is_enabled": "on", "name": "note"}
FORMS = {
    "prompttext": ({**TOLD, "text": "Note it."}, PromptText, "note"),
    "skill": (
        {**TOLD, "description": "How.", "text": "Note it."},
        Skill,
        "skill://note/SKILL.md",
    ),
    "viewexposure": (
        {"is_enabled": "on", "is_readable": "on", "becomes": "tool", "name": "note"},
        ViewExposure,
        "note",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_is_written_in_the_admin_has_its_row_after_the_commit(
    name, serving, settings, django_capture_on_commit_callbacks
):
    data, model, key = FORMS[name]
    settings.ROOT_URLCONF = "tests.admin.test_permission_table"
    client, address = superuser(), f"/admin/mcp_django/{name}/"
    query = "?server=shop&target=front" if name == "viewexposure" else ""
    with django_capture_on_commit_callbacks(execute=True):
        answer = client.post(f"{address}add/{query}", data)
        assert answer.status_code == 302, answer.context["adminform"].errors
        assert key not in keys()
    assert key in keys()
    row = model.objects.get()
    with django_capture_on_commit_callbacks(execute=True):
        client.post(f"{address}{row.pk}/delete/", {"post": "yes"})
    assert Component.objects.get(server="shop", key=key).missing_since is not None


# Under a test runner --------------------------------------------------------------------------


def test_nothing_writes_behind_a_test(monkeypatch, django_capture_on_commit_callbacks):
    site = Site()
    monkeypatch.setattr(databases, "submit_to_db_thread", site.submit)
    shop: MCPServer = site.shop
    server._servers.add(shop)
    call_command("migrate", verbosity=0)
    client = superuser()
    with django_capture_on_commit_callbacks(execute=True):
        client.post("/admin/mcp_django/prompttext/add/", {**TOLD, "text": "Note it."})
    assert PromptText.objects.exists()
    # Publishing is also the thread's work.
    site.work()
    assert not Component.objects.exists()


# When it fails --------------------------------------------------------------------------------


def broken(verb: str) -> Any:
    """Return a wrapper that refuses statements about components that begin with this verb."""

    def refuse(execute: Any, sql: str, params: Any, many: Any, context: Any) -> Any:
        if sql.startswith(verb) and '"mcp_django_component"' in sql:
            raise OperationalError("attempt to use a readonly database")
        return execute(sql, params, many, context)

    return connection.execute_wrapper(refuse)


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum("Cannot update the admin's rows" in record.getMessage() for record in caplog.records)


def test_a_database_that_takes_no_rows_is_told_of_once_until_it_does(serving, caplog):
    with broken("INSERT"):
        for _ in range(3):
            assert Client().get(PAGE).status_code == 200
            serving.work()
            serving.now += CHECK_SECONDS
    assert warnings(caplog) == 1
    assert keys() == set()
    Client().get(PAGE)
    serving.work()
    assert keys() == {"sell"}
    serving.now += CHECK_SECONDS
    serving.shop.tool("lend")(lambda: "")
    with broken("INSERT"):
        Client().get(PAGE)
        serving.work()
    assert warnings(caplog) == 2


def test_a_form_is_saved_where_the_rows_cannot_be(
    serving, caplog, django_capture_on_commit_callbacks
):
    with broken("INSERT"), django_capture_on_commit_callbacks(execute=True):
        answer = superuser().post("/admin/mcp_django/prompttext/add/", {**TOLD, "text": "Note it."})
    assert answer.status_code == 302
    assert PromptText.objects.exists()
    assert warnings(caplog) == 1


def test_a_site_that_is_not_migrated_is_left_alone(serving, monkeypatch, caplog):
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "mcp_django"):
        patch.setattr(connection.introspection, "table_names", list)
        Client().get(PAGE)
        serving.work()
    assert caplog.messages == []
    assert keys() == set()
    serving.now += CHECK_SECONDS
    Client().get(PAGE)
    serving.work()
    assert keys() == {"sell"}
