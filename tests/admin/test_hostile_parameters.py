"""What stands in an address and means nothing: a page, 400 or 404, never an error of the server.

The database of these tests refuses the NUL that PostgreSQL refuses.
"""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth import get_user_model
from django.db.models import Model
from django.test import Client

from tests.admin.every import make_rows, models, pages
from tests.kit.no_nul import refusing_nul

pytestmark = pytest.mark.django_db
NUL = "\0"
MORE = [f"1{NUL}", "\udc80", "-1", "x" * 5000, "%", "'\"<script>"]
# A page for each parameter of each list takes a while.
VALUES = [*(NUL, "9" * 30), *(pytest.param(value, marks=pytest.mark.outside) for value in MORE)]
SHARED = ("q", "o", "p", "all", "_changelist_filters", "_popup", "_to_field")
OWN = {
    "server": (
        *("user", "who", "credential", "client", "scopes", "revision", "days", "range", "as"),
        *("kind", "key", "call"),
    ),
    "call": ("server", "since", "range", "days"),
    "component": ("server", "state"),
    "prompttext": ("with", "p"),
    "skill": ("with", "p"),
}


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture(autouse=True)
def _quiet():
    """Do not log the refused requests, each with a traceback."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def user(db):
    """A superuser."""
    return get_user_model().objects.create_superuser("root")


@pytest.fixture
def root(user, sign_in):
    with refusing_nul():
        client = sign_in(user)
        client.raise_request_exception = False
        yield client


def answers(client: Client, address: str, data: Any = None) -> int:
    response = client.get(address) if data is None else client.post(address, data)
    assert response.status_code < 500, f"{address} {data}: {response.status_code}"
    return response.status_code


def filters_of(model_admin: Any) -> list[str]:
    """The parameters of the filters of a list."""
    names = [
        getattr(list_filter, "parameter_name", list_filter)
        for list_filter in model_admin.list_filter
    ]
    several = [
        name
        for list_filter in model_admin.list_filter
        for name in getattr(list_filter, "labels", ())
    ]
    return [*(name for name in names if isinstance(name, str)), *several]


def keys_of(model: type[Model]) -> list[str]:
    """All that its list may be asked for."""
    model_admin = admin.site._registry[model]
    fields = [field.attname for field in model._meta.concrete_fields]
    filters = filters_of(model_admin)
    lookups = [f"{name}__exact" for name in filters] + [f"{name}__gte" for name in filters]
    dates = [f"{model_admin.date_hierarchy}__{part}" for part in ("year", "month", "day")]
    own = OWN.get(model._meta.model_name or "", ())
    return [
        *SHARED,
        *fields,
        *filters,
        *lookups,
        *(dates if model_admin.date_hierarchy else []),
        *own,
    ]


@pytest.mark.parametrize("value", VALUES, ids=ascii)
@pytest.mark.parametrize("model", models(), ids=lambda model: model._meta.model_name)
def test_no_parameter_of_a_page_is_an_error(model, value, user, root):
    row = make_rows(user)[model]
    text = value.encode(errors="surrogateescape")
    every = [(key, text) for key in keys_of(model)]
    for name, address in pages(model, row.pk):
        answers(root, f"{address}?{urlencode(every)}")
        for pair in every if name == "changelist" else ():
            answers(root, f"{address}?{urlencode([pair])}")


@pytest.mark.parametrize("value", VALUES, ids=ascii)
@pytest.mark.parametrize("model", models(), ids=lambda model: model._meta.model_name)
def test_no_key_of_a_row_is_an_error(model, value, root):
    key = value.encode(errors="replace").decode()
    for _name, address in pages(model, key):
        answers(root, address)
    listed = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
    for action in ("", key, *(admin.site._registry[model].actions or ())):
        answers(root, listed, {"action": action, ACTION_CHECKBOX_NAME: [key], "index": 0})


@pytest.mark.parametrize("model", models(), ids=lambda model: model._meta.model_name)
def test_a_list_is_asked_by_its_filters_alone(model, user, sign_in):
    root = sign_in(user)
    make_rows(user)
    address = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
    model_admin = admin.site._registry[model]
    names = {
        name.partition("__")[0]
        for name in (*filters_of(model_admin), model_admin.date_hierarchy or "")
    }
    for field in model._meta.concrete_fields:
        if field.name not in names:
            for lookup in (field.name, f"{field.name}__contains", f"{field.name}__startswith"):
                assert root.get(f"{address}?{lookup}=a").status_code == 400, lookup


@pytest.mark.parametrize("model", models(), ids=lambda model: model._meta.model_name)
def test_staff_without_permissions_cannot_tell_which_rows_exist(model, user, root, sign_in):
    row = make_rows(user)[model]
    stranger = sign_in(get_user_model().objects.create_user("staff", is_staff=True))
    absent = "nothing" if isinstance(row.pk, str) else 10**6
    there, not_there = (
        [(page, answers(stranger, address)) for page, address in pages(model, key)]
        for key in (row.pk, absent)
    )
    assert there == not_there
