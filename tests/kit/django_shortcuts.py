"""Spares tests what Django does after each of them and need not, and what it cannot do.

Routes: Django forgets all of them whenever `ROOT_URLCONF` changes. It keeps them by the name of
their module, so those of a name stay right; those of an object that a test made are forgotten.

Tables: after a transactional test Django empties all of them and has every app make its content
types and permissions anew, which is most of the time. Here those two tables stay as they are,
unless a test has changed them. Of the others, those that hold rows are emptied row by row, since
PostgreSQL takes up to a second to truncate so many, and has to have all of them for itself.

Connections: after each transactional test Django closes them, for the sake of what is said to a
database when it opens; SQLite forgets none of that, and takes a millisecond to open and prepare.

A thread that is done with a request a moment after its test looks whether it may keep
its connection. Pytest allows no access by then, and takes that for one, so that the connection
would stay open and each later request of the thread would fail.

Fixtures: of those that pytest-django sets up for every test, most are for a marker that a handful
of tests have. The others do without; what clears something is in `tests/conftest.py`.

Sessions: before a login, the test client saves a session that the login replaces and deletes.

Contexts: for each template that is rendered, the test client copies the context. A page of the
admin has a hundred of them, most of them parts of forms, which no test looks at. Here it gets only
the templates that a view names, with what `response.context` is asked for.
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
    """Spare every test of this process all of it."""
    setting_changed.disconnect(root_urlconf_changed)
    setting_changed.connect(_change_routes)
    TransactionTestCase._fixture_setup = classmethod(_look_before)
    TransactionTestCase._fixture_teardown = _empty
    TransactionTestCase._should_reload_connections = _has_to_connect_again
    BaseDatabaseWrapper.get_autocommit = _get_autocommit
    Client._login = _login
    Template._render = _render


def do_without_fixtures(tests: Iterable[pytest.Item]) -> None:
    """Take the fixtures from tests that do not need them."""
    for test in tests:
        if isinstance(test, pytest.Function):
            needless = {name for name, is_needed in FIXTURES.items() if not is_needed(test)}
            # A list of its own: one test of a parametrized function may have a marker.
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
    # Included templates, and those that one extends, share the context of the template of the view.
    is_part = context.template is not self or str(self.name).startswith(PARTS)
    return self.nodelist.render(context) if is_part else instrumented_test_render(self, context)


def _look_before(cls: type[TransactionTestCase]) -> None:
    """Look at the kept tables before the first test, which may be one that changes them."""
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
    """Empty what holds rows; again where a thread of the test was on its last write."""
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
    # MariaDB checks foreign keys at each statement, the others when the transaction ends.
    is_checked_early = connection.vendor == "mysql"
    with connection.constraint_checks_disabled() if is_checked_early else nullcontext():
        connection.ops.execute_sql_flush([f"DELETE FROM {quoted(table)}" for table in filled])


def _is_as_made(name: str) -> bool:
    """Whether the kept tables hold what they held when this was first asked."""
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
