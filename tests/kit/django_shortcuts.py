"""Skip work that Django and pytest-django do for every test, but that these tests do not need.

Routes: Django clears its URL caches whenever `ROOT_URLCONF` changes. The caches are keyed by the
name of the module, so the entries of a name stay valid. Here the caches are cleared only after a
test has set an object as the URLconf.

Tables: after a transactional test, Django empties all tables and creates the content types and
permissions of every app again, which takes most of the time. Here those two tables are kept, unless
a test has changed them. Of the other tables, those that have rows are emptied with `DELETE`,
because PostgreSQL takes up to a second to truncate so many tables, and locks all of them.

Connections: after each transactional test, Django closes its connections, because of the statements
that it executes when it opens one. SQLite keeps their effect, and takes a millisecond to open and
prepare a connection.

A thread that ends a request a moment after its test checks whether it may keep its connection. By
then pytest-django blocks database access, and would block this check, so that the connection would
stay open and each later request of the thread would fail.

Fixtures: most of the fixtures that pytest-django sets up for every test serve a marker that only a
handful of tests have. Here the other tests run without them; `tests/conftest.py` clears caches and
the outbox.

Sessions: before a login, the test client saves a session that the login replaces and deletes. Here
it does not.

Contexts: for each template that is rendered, the test client copies the context. A page of the
admin renders a hundred templates, most of them parts of forms, whose contexts no test reads. Here
the client gets only the contexts of the templates that a view names, for `response.context`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import login
from django.core.signals import setting_changed
from django.db import IntegrityError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest
from django.template import Context, Template
from django.test import Client, TransactionTestCase
from django.test.signals import root_urlconf_changed
from django.test.utils import instrumented_test_render
from django.urls import clear_url_caches, set_urlconf

_is_made_by_test = False


# Fixtures, and whether a test needs them.
FIXTURES: Mapping[str, Callable[[pytest.Function], object]] = {
    "_dj_autoclear_mailbox": lambda test: "mailoutbox" in test.fixturenames,
    "_django_clear_site_cache": lambda test: "django.contrib.sites" in settings.INSTALLED_APPS,
    "_django_db_marker": lambda test: test.get_closest_marker("django_db"),
    "_django_isolate_apps": lambda test: test.get_closest_marker("django_isolate_apps"),
    "_django_set_urlconf": lambda test: test.get_closest_marker("urls"),
    "_django_setup_unittest": lambda test: test.cls,
    "_live_server_helper": lambda test: "live_server" in test.fixturenames,
    "_template_string_if_invalid_marker": lambda test: test.get_closest_marker(
        "ignore_template_errors"
    ),
}
PARTS = ("django/forms/", "admin/widgets/")
KEPT = ("django_content_type", "auth_permission", "django_migrations")
TRIES = 3
_thorough = TransactionTestCase._fixture_teardown
_prepare = TransactionTestCase.__dict__["_fixture_setup"].__func__
_login_again = Client._login
_made: dict[tuple[str, str], list[tuple[Any, ...]]] = {}


def install() -> None:
    """Install all of these shortcuts in this process."""
    setting_changed.disconnect(root_urlconf_changed)
    setting_changed.connect(_change_routes)
    TransactionTestCase._fixture_setup = classmethod(_look_before)
    TransactionTestCase._fixture_teardown = _empty
    TransactionTestCase._should_reload_connections = _has_to_connect_again
    BaseDatabaseWrapper.get_autocommit = _get_autocommit
    Client._login = _login
    Template._render = _render


def do_without_fixtures(tests: Iterable[pytest.Item]) -> None:
    """Remove the fixtures from the tests that do not need them."""
    for test in tests:
        if isinstance(test, pytest.Function):
            needless = {name for name, is_needed in FIXTURES.items() if not is_needed(test)}
            # A new list, because one test of a parametrized function may have a marker.
            test.fixturenames = [name for name in test.fixturenames if name not in needless]


def _change_routes(*, setting: str, value: Any, **kwargs: Any) -> None:
    global _is_made_by_test  # noqa: PLW0603 - the signal has no other memory
    if setting == "ROOT_URLCONF":
        if _is_made_by_test:
            clear_url_caches()
        _is_made_by_test = not isinstance(value, str)
        set_urlconf(None)


def _get_autocommit(self: BaseDatabaseWrapper) -> bool:
    if self.connection is None:
        self.ensure_connection()
    return self.autocommit


def _login(self: Client, user: Any, backend: str | None = None) -> None:
    if settings.SESSION_COOKIE_NAME in self.cookies:
        _login_again(self, user, backend)
        return
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore()
    login(request, user, backend)
    request.session.save()
    self._set_login_cookies(request)


def _render(self: Template, context: Context) -> str:
    # Included templates, and extended templates, share the context of the view's template.
    is_part = context.template is not self or str(self.name).startswith(PARTS)
    return self.nodelist.render(context) if is_part else instrumented_test_render(self, context)


def _look_before(cls: type[TransactionTestCase]) -> None:
    """Read the kept tables before the first test, which may change them."""
    for name in cls._databases_names(include_mirrors=False):
        if _key_of(name) not in _made:
            _is_as_made(name)
    _prepare(cls)


def _has_to_connect_again(self: TransactionTestCase) -> bool:
    initialized = connections.all(initialized_only=True)
    opened = [connection for connection in initialized if connection.connection is not None]
    return any(
        connection.vendor != "sqlite" or not connection.get_autocommit() for connection in opened
    )


def _empty(self: TransactionTestCase) -> None:
    names = list(self._databases_names(include_mirrors=False))
    if self.available_apps is not None or not all(map(_is_as_made, names)):
        _thorough(self)
        _made.clear()
        return
    for name in names:
        _empty_tables(connections[name])


def _empty_tables(connection: Any) -> None:
    """Empty the tables that have rows; try again if a thread of the test is still writing."""
    for _ in range(TRIES - 1):
        with suppress(IntegrityError, OperationalError):
            _delete(connection)
            return
    _delete(connection)


def _delete(connection: Any) -> None:
    quoted = connection.ops.quote_name
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor)).difference(KEPT)
        cursor.execute(
            " UNION ALL ".join(
                f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {quoted(table)})" for table in tables
            )
        )
        filled = [table for (table,) in cursor.fetchall()]
    # MariaDB checks foreign keys at each statement, other databases at the end of the transaction.
    is_checked_early = connection.vendor == "mysql"
    with connection.constraint_checks_disabled() if is_checked_early else nullcontext():
        connection.ops.execute_sql_flush([f"DELETE FROM {quoted(table)}" for table in filled])


def _is_as_made(name: str) -> bool:
    """Return whether the kept tables have the same rows as at the first call."""
    connection = connections[name]
    now: list[tuple[Any, ...]] = []
    with connection.cursor() as cursor:
        existing = connection.introspection.table_names(cursor)
        for table in KEPT[:2]:
            if table in existing:
                cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
                now += cursor.fetchall()
    return _made.setdefault(_key_of(name), now) == now


def _key_of(name: str) -> tuple[str, str]:
    return name, str(connections[name].settings_dict["NAME"])
