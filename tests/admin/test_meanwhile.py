"""Two people at once: whoever saves last gives nobody back what the other took away."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from mcp_django.models import Component, ModelExposure, PromptText, Server
from mcp_django.overrides.sync import sync_rows
from tests.admin.shelf import shelf
from tests.admin.staff import superuser

pytestmark = pytest.mark.django_db
SAID = "Another user changed the access settings"


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def root():
    """An administrator."""
    return superuser()


def component() -> Any:
    """A tool."""
    sync_rows([shelf])
    return Component.objects.get(server="shelf", key="look")


def server() -> Any:
    """A server."""
    sync_rows([shelf])
    return Server.objects.get(name="shelf")


def exposure() -> Any:
    """An exposed model."""
    return ModelExposure.objects.create(
        server="shelf", target="auth.Group", options={"fields": ["id", "name"]}
    )


def prompt() -> Any:
    """A written prompt."""
    return PromptText.objects.create(server="shelf", name="note", text="Note it.")


def fields(page: str) -> dict[str, Any]:
    """What a browser sends of a form that nobody touched."""
    form = page.partition("novalidate>")[2].partition("</form>")[0]
    values: dict[str, Any] = {}
    for tag in re.findall(r"<input [^>]*>", form):
        attributes = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        is_box = attributes.get("type") in ("checkbox", "radio")
        if (
            "name" in attributes
            and attributes.get("type") != "submit"
            and (not is_box or " checked" in tag)
        ):
            value = attributes.get("value", "on" if is_box else "")
            values.setdefault(attributes["name"], []).append(unescape(value))
    area = r'<textarea name="([^"]*)"[^>]*>\n?(.*?)</textarea>'
    for name, text in re.findall(area, form, re.DOTALL):
        values[name] = [unescape(text)]
    return values


@pytest.mark.parametrize(
    "made", [component, server, exposure, prompt], ids=lambda make: make.__name__
)
@pytest.mark.parametrize(
    "taken", [{"is_enabled": False}, {"groups": ["clerks"]}, {"permissions": ["auth.view_group"]}]
)
def test_a_form_that_was_open_meanwhile_is_refused_once(root, made, taken):
    row = made()
    page = f"/admin/mcp_django/{row._meta.model_name}/{row.pk}/change/"
    opened = {**fields(root.get(page).content.decode()), "_save": "Save"}
    type(row).objects.filter(pk=row.pk).update(**taken)
    answer = root.post(page, opened)
    assert SAID in answer.content.decode()
    row.refresh_from_db()
    assert {name: getattr(row, name) for name in taken} == taken
    again = {**opened, "access_digest": fields(answer.content.decode())["access_digest"]}
    assert root.post(page, again).status_code == 302


@pytest.mark.parametrize(
    "made", [component, server, exposure, prompt], ids=lambda make: make.__name__
)
def test_a_form_alone_is_saved_at_once(root, made):
    row = made()
    page = f"/admin/mcp_django/{row._meta.model_name}/{row.pk}/change/"
    opened = {**fields(root.get(page).content.decode()), "_save": "Save"}
    assert root.post(page, opened).status_code == 302


def test_a_list_that_was_open_meanwhile_switches_nothing_on(root):
    row = component()
    opened = fields(root.get("/admin/mcp_django/component/?server=shelf").content.decode())
    assert list(opened.values()).count(["on"]) == 5
    Component.objects.filter(pk=row.pk).update(is_enabled=False)
    answer = root.post("/admin/mcp_django/component/?server=shelf", {**opened, "_save": "Save"})
    assert answer.status_code == 302
    row.refresh_from_db()
    assert not row.is_enabled
