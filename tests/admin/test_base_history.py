"""The history of a row tells what was changed: the old value and the new one."""

from __future__ import annotations

import json

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.test import Client
from django.utils.translation import override

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Component, ExternalIdentity, ModelExposure, PromptText
from mcp_django.overrides.sync import sync_rows
from tests.admin import test_exposures_models as exposures, test_prompts as prompts
from tests.admin.reading import text_of
from tests.admin.shelf import shelf
from tests.admin.staff import superuser
from tests.admin.test_components import LIST, editing, form, page_of
from tests.kit.servers import person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def look():
    sync_rows([shelf])
    return Component.objects.get(server="shelf", key="look")


def history_of(client: Client, page: str) -> str:
    """The table of a history, the only place that has arrows."""
    shown = text_of(client.get(page.replace("/change/", "/history/")))
    return shown[shown.index("Action") :]


def test_a_form_tells_each_value(look):
    Group.objects.create(name="Operations desk")
    client = superuser()
    client.post(page_of(look), form(look, rate="2/m", groups=["Operations desk"], title="Look"))
    look.refresh_from_db()
    shown = history_of(client, page_of(look))
    assert "Title: - → Look" in shown
    assert "Rate: - → 2/m" in shown
    assert "Groups: + Operations desk" in shown
    changed = form(look, rate="10/m", description="Line 1\nLine 2", is_enabled="")
    changed.pop("groups")
    client.post(page_of(look), changed)
    shown = history_of(client, page_of(look))
    assert "Rate: 2/m → 10/m" in shown
    assert "Description: - → Line 1 Line 2" in shown
    assert "Enabled: on → off" in shown
    assert "Groups: - Operations desk" in shown
    assert "Title" not in shown.rpartition("root")[2]


def test_the_old_text_is_kept_whole(look):
    client = superuser()
    texts = ["first " * 200, "second " * 200]
    for text in texts:
        look.refresh_from_db()
        client.post(page_of(look), form(look, description=text))
    shown = history_of(client, page_of(look))
    assert f"{texts[0].strip()} → {texts[1].strip()}" in shown


def test_a_switch_in_the_list_is_told(look):
    client = superuser()
    rows = list(Component.objects.filter(server="shelf").order_by("server", "kind", "key"))
    client.post(f"{LIST}?server=shelf", editing(rows, off=look))
    assert "Enabled: on → off" in history_of(client, page_of(look))


def test_a_bulk_action_tells_the_values_of_each_row(look):
    client = superuser()
    other = Component.objects.get(server="shelf", key="recommend")
    Component.objects.filter(pk=look.pk).update(rate="2/m", scopes=["a"])
    Component.objects.filter(pk=other.pk).update(approval="staff")
    rows = [look.pk, other.pk]
    client.post(LIST, {"action": "clear_overrides", "_selected_action": rows, "index": 0})
    first, second = history_of(client, page_of(look)), history_of(client, page_of(other))
    assert "Rate: 2/m → -" in first
    assert "Scopes: - a" in first
    assert "Approval" not in first
    # With the label of the choice, as the form shows it.
    assert f"Approval: {Component.Approval.STAFF.label} → -" in second
    client.post(LIST, {"action": "disable", "_selected_action": rows, "index": 0})
    assert "Enabled: on → off" in history_of(client, page_of(other))


def test_an_exposure_tells_which_fields_and_tools(few_servers):
    desk = MCPServer("desk", permission=AllowAny)
    client = superuser()
    client.post(exposures.ADD, exposures.FORM)
    row = ModelExposure.objects.get(server=desk.name)
    changed = {
        **exposures.FORM,
        "paths-fields": ["number", "status", "total"],
        "operations": ["list", "count"],
        "page_size": "30",
    }
    client.post(f"{exposures.LIST}{row.pk}/change/", changed)
    shown = history_of(client, f"{exposures.LIST}{row.pk}/change/")
    assert "Fields: fields: + total, - customer" in shown
    assert "Tools: + count, - get" in shown
    assert "Rows per page: 20 → 30" in shown
    client.post(exposures.LIST, {"action": "disable", "_selected_action": [row.pk], "index": 0})
    assert "Enabled: on → off" in history_of(client, f"{exposures.LIST}{row.pk}/change/")


def test_a_prompt_tells_of_its_switch(few_servers):
    server = MCPServer("texts", permission=AllowAny)
    row = PromptText.objects.create(server=server.name, name="greet", text="Hello", version=1)
    client = superuser()
    page = "/admin/mcp_django/prompttext/"
    client.post(page, {"action": "disable", "_selected_action": [row.pk], "index": 0})
    assert "Enabled: on → off" in history_of(client, f"{page}{row.pk}/change/")


def test_a_prompt_tells_of_its_arguments_and_its_text(few_servers):
    # Servers are registered weakly.
    server = MCPServer("written", permission=AllowAny)
    client, page = superuser(), "/admin/mcp_django/prompttext/"
    client.post(f"{page}add/", prompts.form(server=server.name))
    row = PromptText.objects.get()
    changed = prompts.form(
        **{"arguments-1-choices": "warm\r\nsharp\r\n", "text": "Dear {{ to }}.", "based_on": "1"}
    )
    client.post(f"{page}{row.pk}/change/", changed)
    shown = history_of(client, f"{page}{row.pk}/change/")
    assert "Arguments: + name: tone; choices: warm, sharp, - name: tone; choices: warm" in shown
    assert "Text: Dear {{ to }}, --- assistant Yours → Dear {{ to }}." in shown


def test_another_user_of_an_identity_is_told_by_name():
    row = ExternalIdentity.objects.create(
        issuer="https://id.example", subject="s", user=person("ada")
    )
    client = superuser()
    page = f"/admin/mcp_django/externalidentity/{row.pk}/change/"
    client.post(page, {"user": person("eve").pk})
    assert "User: ada → eve" in history_of(client, page)


def test_django_and_other_readers_have_the_names_of_the_fields(look):
    superuser().post(page_of(look), form(look, rate="2/m", groups=[]))
    log_entry = LogEntry.objects.get()
    assert log_entry.get_change_message() == "Changed Rate."
    (part,) = json.loads(log_entry.change_message)
    assert part["changed"]["values"] == [
        {"name": "rate", "label": "Rate", "old": None, "new": "2/m"}
    ]


def test_an_entry_of_another_shape_is_shown_as_django_does(look):
    client = superuser()
    user = client.session["_auth_user_id"]
    for message in ("Something.", "[]", '[{"changed": {"fields": ["Rate"]}}]', '{"a": 1}'):
        LogEntry.objects.log_actions(user, [look], 2, message)
    shown = history_of(client, page_of(look))
    assert "Something." in shown
    assert "Changed Rate." in shown


def test_what_is_told_is_escaped_and_in_the_words_of_the_reader(look):
    client = superuser()
    client.post(page_of(look), form(look, title="<script>alert(1)</script>", is_enabled=""))
    page = page_of(look).replace("/change/", "/history/")
    html = client.get(page).content.decode()
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html
    with override("de"):
        german = client.get(page, headers={"accept-language": "de"}).content.decode()
    assert "→" in german
