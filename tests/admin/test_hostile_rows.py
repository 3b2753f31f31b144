"""Rows that were written past the admin: its pages open, and say what is wrong.

And what somebody sends beside the fields of a form changes nothing.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import JSONField, Value

from mcp_django.models import (
    Component,
    ModelExposure,
    PromptText,
    PromptVersion,
    Server,
    ViewExposure,
)
from mcp_django.overrides.sync import sync_rows
from tests.admin.shelf import shelf
from tests.admin.staff import staff, superuser

pytestmark = pytest.mark.django_db
MARKUP = "<script>alert(1)</script>"
# Four pages for each of these in each column take half a minute.
MORE_GARBAGE = [5, True, "abc", {"a": 1}, [5], [[]], [{}]]
GARBAGE: list[Any] = [
    *(Value(None, JSONField()), [MARKUP]),
    *(pytest.param(value, marks=pytest.mark.outside) for value in MORE_GARBAGE),
]


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"
    sync_rows([shelf])


def row_of(kind: str, /, **values: Any) -> Any:
    if kind == "component":
        row: Any = Component.objects.get(server="shelf", key="look")
    elif kind == "server":
        row = Server.objects.get(name="shelf")
    elif kind == "prompttext":
        row = PromptText(server="shelf", name="note", text="Note it.")
    elif kind == "modelexposure":
        row = ModelExposure(server="shelf", target="auth.Group", options={"fields": ["name"]})
    else:
        row = ViewExposure(server="shelf", target="admin:index")
    for name, value in values.items():
        setattr(row, name, value)
    row.save()
    return row


LISTS = [
    *((kind, column) for kind in ("component", "prompttext") for column in ("groups", "scopes")),
    *(("server", "groups"), ("server", "permissions"), ("component", "permissions")),
    *(("modelexposure", "groups"), ("modelexposure", "options"), ("prompttext", "arguments")),
    *(("viewexposure", "scopes"), ("viewexposure", "options")),
]


@pytest.mark.parametrize("value", GARBAGE, ids=ascii)
@pytest.mark.parametrize(("kind", "column"), LISTS)
def test_every_page_of_such_a_row_opens(kind, column, value):
    row = row_of(kind, **{column: value})
    for client in (superuser(), staff(f"view_{kind}")):
        for page in ("", f"{row.pk}/change/"):
            answer = client.get(f"/admin/mcp_django/{kind}/{page}")
            assert answer.status_code == 200
            assert MARKUP not in answer.content.decode()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("component", {"rate": "often"}),
        ("component", {"approval": "nobody"}),
        ("component", {"kind": "spell"}),
        ("server", {"rate": "often"}),
    ],
)
def test_what_means_nothing_does_not_close_the_page(kind, values):
    row = row_of(kind, **values)
    root = superuser()
    assert root.get(f"/admin/mcp_django/{kind}/").status_code == 200
    assert root.get(f"/admin/mcp_django/{kind}/{row.pk}/change/").status_code == 200
    if kind == "component":
        chosen = {"action": "disable", "_selected_action": [row.pk], "index": 0}
        assert root.post("/admin/mcp_django/component/", chosen).status_code == 302


@pytest.mark.parametrize("kind", ["component", "server"])
def test_what_is_off_for_it_is_said(kind):
    row = row_of(kind, groups=5)
    page = superuser().get(f"/admin/mcp_django/{kind}/{row.pk}/change/").content.decode()
    assert "invalid data" in page
    assert "is invalid, so access is denied" in page


@pytest.mark.parametrize("content", [[1], 5, {"text": 5}, {"title": None}, {"arguments": "x"}])
def test_a_version_that_cannot_be_read_is_shown_as_such_and_not_restored(content):
    prompt = row_of("prompttext", version=1)
    PromptVersion.objects.create(prompt=prompt, number=1, content=content)
    root, page = superuser(), f"/admin/mcp_django/prompttext/{prompt.pk}/versions/1/"
    assert root.get(page).status_code == 200
    assert root.post(f"{page}restore/", {"based_on": "1"}).status_code == 302
    prompt.refresh_from_db()
    assert (prompt.text, prompt.version) == ("Note it.", 1)


@pytest.mark.parametrize("kind", ["component", "server", "prompttext", "modelexposure"])
def test_nothing_but_the_fields_of_the_form_is_written(kind):
    row = row_of(kind)
    columns = [field.attname for field in row._meta.concrete_fields]
    kept = [
        column
        for column in columns
        if column in ("id", "server", "kind", "key", "origin", "guarded_by", "target", "version")
        or (column == "name" and kind != "modelexposure")
    ]
    before = {name: getattr(row, name) for name in kept}
    sent: dict[str, Any] = dict.fromkeys(columns, "9") | {"version": "9", "id": "999"}
    usual = {"groups": [], "permissions": [], "scopes": "", "rate": "", "approval": ""}
    table = {"paths-fields": ["name"], "operations": ["list"], "page_size": "5", "name": ""}
    more = {"modelexposure": table, "prompttext": {"text": "Changed.", "based_on": "0"}}
    client = superuser()
    answer = client.post(
        f"/admin/mcp_django/{kind}/{row.pk}/change/", {**sent, **usual, **more.get(kind, {})}
    )
    row.refresh_from_db()
    assert answer.status_code in (200, 302)
    if kind == "prompttext":
        before.pop("version")
    assert {name: getattr(row, name) for name in before} == before
