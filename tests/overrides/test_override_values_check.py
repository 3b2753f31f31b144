"""The system check of overrides."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import pytest
from django.contrib.auth.models import Group
from django.core import checks
from django.db import OperationalError, connection

from mcp_django import server as server_module
from mcp_django.models import Component, Server

pytestmark = pytest.mark.django_db
ROW = {"server": "checked", "kind": "tool"}


def name_warnings(**options: Any) -> list[checks.CheckMessage]:
    messages = checks.run_checks(tags=["database"], **{"databases": ["default"], **options})
    return [message for message in messages if message.id == "mcp_django.W015"]


def test_names_that_are_not_there_are_told():
    Group.objects.create(name="clerks")
    Server.objects.create(name="checked", groups=["clerks", "ghosts"])
    Component.objects.create(
        **ROW, key="tool", permissions=["auth.view_group", "no.such"], scopes=["mcp", "other"]
    )
    texts = [str(warning.msg) for warning in name_warnings()]
    assert len(texts) == 3
    for name in ("ghosts", "no.such", "other"):
        assert sum(f": {name}." in text for text in texts) == 1


def test_all_is_well_where_all_names_are_there():
    Component.objects.create(**ROW, key="tool", permissions=["auth.view_group"], scopes=["mcp"])
    assert name_warnings() == []


def test_what_is_missing_in_code_is_left_alone():
    Component.objects.create(
        **ROW, key="gone", groups=["ghosts"], missing_since="2026-01-01T00:00:00Z"
    )
    assert name_warnings() == []


def test_the_database_is_asked_where_that_is_wanted_alone(django_assert_num_queries, monkeypatch):
    # Forms that other tests have declared on servers may query.
    monkeypatch.setattr(server_module, "_servers", WeakSet())
    Server.objects.create(name="checked", groups=["ghosts"])
    with django_assert_num_queries(0):
        assert name_warnings(databases=[]) == []
        # Later versions of Django check every database if none is named.
        messages = checks.run_checks(tags=["mcp_django"], databases=[])
    assert "mcp_django.W015" not in {message.id for message in messages}


def test_a_site_that_is_not_migrated_is_checked_all_the_same():
    def refuse(*args: Any) -> Any:
        raise OperationalError("no such table")

    with connection.execute_wrapper(refuse):
        assert name_warnings() == []
