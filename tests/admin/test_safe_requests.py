"""Looking at a page of the admin changes nothing (RFC 9110, 9.2.1)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connections

from mcp_django.models import Component, Server
from mcp_django.overrides.sync import compare_rows
from mcp_django.server import all_servers
from tests.admin.attempts import make_site
from tests.admin.test_permission_table import (
    front,  # noqa: F401 - the URLconf has it
    urlpatterns as site_urls,
)

pytestmark = pytest.mark.django_db
urlpatterns = site_urls

CHANGES = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|REPLACE|MERGE|CREATE|DROP|ALTER) ")
# Looking as another user leaves a line in Django's own log, as an access log has.
LOGGED = re.compile(r'INSERT INTO "django_admin_log" ')
AS_ANOTHER = "/seen/?who=user&user="
BESIDE = ("/admin/", "/admin/mcp_django/", "/admin/mcp_oauth/")
# What a page refuses, or answers with where to go: it is looked at all the same.
ANSWERS = (200, 302, 403, 404, 405)


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = __name__


@contextmanager
def statements_that_change() -> Iterator[list[str]]:
    """The statements of all databases that change a row, whosever it is."""
    statements: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: Any, context: Any) -> Any:
        if CHANGES.match(sql):
            statements.append(sql)
        return execute(sql, params, many, context)

    with ExitStack() as stack:
        for connection in connections.all():
            stack.enter_context(connection.execute_wrapper(note))
        yield statements


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """Do not log the refused requests."""
    monkeypatch.setattr(logging.getLogger("django.request"), "disabled", True)


@pytest.mark.parametrize("method", ["get", "head"])
def test_no_page_writes_when_it_is_looked_at(method, sign_in):
    site = make_site()
    # Something is new, something is different, something is gone.
    Server.objects.filter(name="shelf").update(title="Shelf")
    Server.objects.exclude(name="shelf").delete()
    Component.objects.filter(server="shelf", key="clear").delete()
    Component.objects.filter(server="shelf", key="look").update(origin="elsewhere")
    Component.objects.create(server="shelf", kind="tool", key="was-there", name="was-there")
    lacks = compare_rows(all_servers())
    assert lacks.servers
    assert lacks.added
    assert lacks.changed
    assert lacks.missing
    addresses = {attempt.address for attempt in site.attempts.values()}
    client = sign_in(get_user_model().objects.create_superuser("boss"))
    written = {}
    for address in sorted({*addresses, *BESIDE}):
        with statements_that_change() as statements:
            response = getattr(client, method)(address)
            response.getvalue()
        assert response.status_code in ANSWERS, address
        if AS_ANOTHER in address:
            statements = [statement for statement in statements if not LOGGED.match(statement)]
        if statements:
            written[address] = statements
    assert len(addresses) > 100
    assert written == {}
