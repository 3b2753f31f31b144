"""*Update from code*: the lists say where they are behind the code, and a button updates them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.test import Client

from mcp_django import server as module
from mcp_django.models import Component, Server
from mcp_django.overrides.sync import sync_rows
from tests.admin.reading import text_of
from tests.admin.shelf import shelf
from tests.admin.staff import staff, superuser

pytestmark = pytest.mark.django_db
COMPONENTS, SERVERS = "/admin/mcp_django/component/", "/admin/mcp_django/server/"
LISTS = pytest.mark.parametrize("page", [COMPONENTS, SERVERS])
BEHIND, BUTTON = "The rows are out of date", "Update from code"


@pytest.fixture(autouse=True)
def _site(settings, monkeypatch):
    settings.ROOT_URLCONF = "tests.admin.urls"
    monkeypatch.setattr(module, "_servers", type(module._servers)({shelf}))


def fall_behind() -> None:
    """One component is new, one is different, and two are gone."""
    sync_rows([shelf])
    Component.objects.filter(key="clear").delete()
    Component.objects.filter(key="look").update(origin="elsewhere")
    for key in ("sold", "lost"):
        Component.objects.create(server="shelf", kind="tool", key=key, name=key)


@LISTS
def test_a_list_without_rows_says_what_is_new(page):
    text = text_of(superuser().get(page))
    assert f"{BEHIND}: 1 new server and 5 new components." in text
    assert BUTTON in text
    assert not Component.objects.exists()


@LISTS
def test_a_list_says_what_is_different(page):
    fall_behind()
    text = text_of(superuser().get(page))
    expected = "1 new component, 1 changed component and 2 removed components."
    assert f"{BEHIND}: {expected}" in text


@LISTS
def test_a_list_that_is_up_to_date_says_nothing(page):
    sync_rows([shelf])
    text = text_of(superuser().get(page))
    assert BEHIND not in text
    assert BUTTON not in text


@LISTS
def test_the_button_updates_the_rows_and_says_what_it_did(page):
    fall_behind()
    Server.objects.all().delete()
    client = superuser()
    response = client.post(f"{page}update/", follow=True)
    assert response.redirect_chain == [(page, 302)]
    text = text_of(response)
    assert (
        "Updated from code: 1 server added, 1 component added, 1 component changed and "
        "2 components marked as missing." in text
    )
    assert BEHIND not in text
    assert Component.objects.get(key="look").origin != "elsewhere"
    assert Component.objects.exclude(missing_since=None).count() == 2
    assert {
        (record.object_repr, record.action_flag, record.get_change_message())
        for record in LogEntry.objects.all()
    } == {
        ("shelf", ADDITION, "Added from code."),
        ("tool clear", ADDITION, "Added from code."),
        ("tool look", CHANGE, "Updated from code."),
        ("tool sold", CHANGE, "Removed from code."),
        ("tool lost", CHANGE, "Removed from code."),
    }
    row = Component.objects.get(key="clear")
    assert "Added from code." in text_of(client.get(f"{COMPONENTS}{row.pk}/history/"))


@LISTS
def test_the_button_says_that_there_is_nothing_to_do(page):
    sync_rows([shelf])
    text = text_of(superuser().post(f"{page}update/", follow=True))
    assert "There is nothing to update: the rows match the code." in text
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(("page", "name"), [(COMPONENTS, "component"), (SERVERS, "server")])
def test_only_those_who_may_change_the_rows_have_the_button(page, name):
    viewer = staff(f"view_{name}")
    text = text_of(viewer.get(page))
    assert BEHIND in text
    assert "Users with the change permission can update them." in text
    assert "/update/" not in viewer.get(page).content.decode()
    assert viewer.post(f"{page}update/").status_code == 403
    assert not Component.objects.exists()
    changer = staff(f"change_{name}")
    assert f'action="{page}update/"' in changer.get(page).content.decode()
    assert changer.post(f"{page}update/").status_code == 302
    assert Component.objects.count() == 5


@LISTS
def test_the_button_is_a_form_that_no_other_site_can_send(page):
    client = superuser()
    assert client.get(f"{page}update/").status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    assert strict.post(f"{page}update/").status_code == 403
    assert not Component.objects.exists()


def test_what_the_admin_cannot_be_asked_for_is_no_reason_to_show_no_list(monkeypatch):
    from mcp_django.exceptions import Busy

    def refuse(**kwargs: Any) -> None:
        raise Busy("The server cannot read its settings; try again in a moment.")

    sync_rows([shelf])
    monkeypatch.setattr(shelf, "refresh", refuse)
    response = superuser().get(COMPONENTS)
    assert response.status_code == 200
    assert BEHIND not in text_of(response)


@LISTS
def test_the_button_says_why_nothing_was_updated(page, monkeypatch):
    from mcp_django.exceptions import Busy

    def fail(*_: Any, **__: Any) -> None:
        raise Busy("The server cannot read its settings; try again in a moment.")

    monkeypatch.setattr(shelf, "refresh", fail)
    text = text_of(superuser().post(f"{page}update/", follow=True))
    assert "Nothing was updated: The server cannot read its settings" in text
    assert not Component.objects.exists()
