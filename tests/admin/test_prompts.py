"""Prompts written in the admin: the form, its preview, versions, and who may do what."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.test import Client

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Component, PromptText
from mcp_django.overrides.sync import sync_rows
from mcp_django.overrides.text_versions import PROMPTS
from mcp_django.test import MCPClient
from tests.admin.reading import page
from tests.admin.staff import staff

pytestmark = pytest.mark.django_db
# What is decided is known, and told, after the commit.
commits = pytest.mark.django_db(transaction=True)
LIST = "/admin/mcp_django/prompttext/"
HOSTILE = "<script>alert(1)</script>{{ x }}"


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture(autouse=True)
def server():
    """A server of its own, with one prompt in code."""
    server = MCPServer("written", permission=AllowAny)

    @server.prompt
    def in_code() -> str:
        """Say what code says."""
        return "code"

    return server


@pytest.fixture
def root(client):
    """An administrator, signed in."""
    user = get_user_model().objects.create_superuser("root", password="root")
    client.force_login(user)
    return user


def form(**values: Any) -> dict[str, Any]:
    """What a browser sends."""
    return {
        "server": "written",
        "name": "letter",
        "is_enabled": "on",
        "title": "Letter",
        "description": "Write a letter.",
        "text": "Dear {{ to }},\r\n--- assistant\r\nYours",
        "arguments-0-name": "to",
        "arguments-0-required": "1",
        "arguments-1-name": "tone",
        "arguments-1-choices": "warm\r\ncool\r\n",
        "based_on": "0",
        **values,
    }


def saved(**values: Any) -> PromptText:
    """A row, as the admin keeps it."""
    row = PromptText(**{"server": "written", "name": "letter", "text": "Hello.", **values})
    PROMPTS.save(row, author=None, based_on=0)
    return row


# The form -------------------------------------------------------------------------------------


@commits
def test_a_prompt_written_here_is_got_by_a_client(client, root, server):
    assert client.post(f"{LIST}add/", form()).status_code == 302
    row = PromptText.objects.get()
    assert (row.version, row.text) == (1, "Dear {{ to }},\n--- assistant\nYours")
    assert row.arguments[1]["choices"] == ["warm", "cool"]
    assert row.versions.get().author == root
    user, assistant = MCPClient(server=server).get_prompt("letter", {"to": "Ada"})
    assert user["content"]["text"] == "Dear Ada,"
    assert assistant["role"] == "assistant"
    assert LogEntry.objects.get().is_addition()


@commits
def test_a_change_makes_a_version_and_the_name_stays(client, root, server):
    row = saved()
    address = f"{LIST}{row.pk}/change/"
    assert 'name="based_on" value="1"' in page(client, address)
    changed = form(name="other", server="default", text="New {{ to }}", based_on="1")
    assert client.post(address, changed).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.server, row.version) == ("letter", "written", 2)
    assert MCPClient(server=server).get_prompt("letter", {"to": "Ada"})
    # Nothing new is said, so there is no version.
    same = {**changed, "based_on": "2", "groups": [Group.objects.create(name="Editors").name]}
    assert client.post(address, same).status_code == 302
    row.refresh_from_db()
    assert (row.version, row.groups) == (2, ["Editors"])
    assert LogEntry.objects.count() == 2


@pytest.mark.parametrize(
    ("values", "field", "word"),
    [
        ({"text": "One\r\n{{ nobody }}"}, "text", "Line 2"),
        ({"text": ""}, "text", "required"),
        ({"text": " "}, "text", "empty"),
        ({"name": "no name"}, "name", "A-Z"),
        ({"name": "in_code"}, "name", "Code has a prompt"),
        ({"server": "nowhere"}, "server", "nowhere"),
        ({"arguments-0-name": "and"}, "arguments", "and"),
        ({"arguments-1-name": "to"}, "arguments", "to"),
        ({"permissions": ["auth.nothing"]}, "permissions", "auth.nothing"),
        ({"scopes": 'a"b'}, "scopes", "scope"),
        ({"title": "a" * 201}, "title", "200"),
    ],
)
def test_what_cannot_be_offered_is_said_beside_its_field(client, root, values, field, word):
    response = client.post(f"{LIST}add/", form(**values))
    assert response.status_code == 200
    errors = response.context["adminform"].form.errors
    assert word in " ".join(errors[field])
    assert not PromptText.objects.exists()
    # Nothing that was typed is lost.
    assert 'value="to"' in response.content.decode() or field == "arguments"


def test_a_name_is_there_once_for_each_server(client, root):
    saved()
    assert client.post(f"{LIST}add/", form()).status_code == 200
    assert client.post(f"{LIST}add/", form(server="default")).status_code == 302


def test_the_second_of_two_editors_is_told_and_loses_nothing(client, root):
    row = saved()
    row.text = "Theirs."
    PROMPTS.save(row, author=None, based_on=1)
    address = f"{LIST}{row.pk}/change/"
    mine = form(text="Mine {{ to }}.", based_on="1")
    answer = client.post(address, mine)
    assert answer.status_code == 200
    text = answer.content.decode()
    assert "now at version 2" in text
    assert "Mine {{ to }}." in text
    row.refresh_from_db()
    assert row.text == "Theirs."
    # Whoever has read that saves over it, and theirs is among the versions.
    assert 'name="based_on" value="2"' in text
    assert client.post(address, {**mine, "based_on": "2"}).status_code == 302
    row.refresh_from_db()
    assert row.text == "Mine {{ to }}."
    assert [version.content["text"] for version in row.versions.all()] == [
        "Mine {{ to }}.",
        "Theirs.",
        "Hello.",
    ]


def test_what_is_written_is_escaped_everywhere(client, root):
    arguments = [{"name": "x", "description": "<b>", "choices": ["<i>"], "required": False}]
    row = saved(title=HOSTILE, description=HOSTILE, text=HOSTILE, arguments=arguments)
    row.text = f"{HOSTILE}2"
    PROMPTS.save(row, author=None, based_on=1)
    sent = form(
        **{"text": HOSTILE, "title": HOSTILE, "arguments-0-name": "x", "arguments-0-required": ""},
        **{"arguments-0-description": "<b>", "arguments-0-choices": "<i>"},
    )
    pages = [
        page(client, LIST),
        page(client, f"{LIST}{row.pk}/change/"),
        page(client, f"{LIST}{row.pk}/versions/"),
        page(client, f"{LIST}{row.pk}/versions/2/"),
        client.post(f"{LIST}preview/", sent).content.decode(),
    ]
    assert not any("<script>alert" in text or "<b>" in text or "<i>" in text for text in pages)


# The preview ----------------------------------------------------------------------------------


def test_a_preview_shows_messages_and_entry_and_keeps_nothing(client, root):
    text = client.post(f"{LIST}preview/", form()).content.decode()
    assert "Dear «to»," in text
    assert "Assistant" in text
    assert "&quot;name&quot;: &quot;letter&quot;" in text
    assert not PromptText.objects.exists()
    assert not LogEntry.objects.exists()


def test_a_preview_takes_other_values_and_sends_the_draft_again(client, root):
    response = client.post(
        f"{LIST}preview/", form(**{"sample-to": "{{ tone }}", "sample-tone": ""})
    )
    text = response.content.decode()
    assert "Dear {{ tone }}," in text
    kept = dict(response.context["kept"])
    assert kept["text"] == form()["text"]
    assert "csrfmiddlewaretoken" not in kept
    assert not any(name.startswith("sample-") for name in kept)


def test_a_preview_says_what_is_wrong(client, root):
    text = client.post(f"{LIST}preview/", form(text="{{ nobody }}")).content.decode()
    assert "Line 1" in text
    text = client.post(f"{LIST}preview/", form(**{"sample-to": ""})).content.decode()
    assert "to: is required" in text


def test_a_preview_of_a_prompt_leaves_it_as_it_is(client, root):
    row = saved()
    address = f"{LIST}{row.pk}/preview/"
    assert "Dear «to»," in client.post(address, form(based_on="99")).content.decode()
    row.refresh_from_db()
    assert (row.text, row.version) == ("Hello.", 1)
    assert client.get(address).status_code == 405
    assert client.post(f"{LIST}99/preview/", form()).status_code == 404


# Versions -------------------------------------------------------------------------------------


@pytest.fixture
def two_versions():
    """A prompt that has said two things."""
    row = saved(text="one\ntwo", title="Old")
    row.text, row.title = "one\nthree", "New"
    PROMPTS.save(row, author=None, based_on=1)
    return row


def test_versions_are_listed_and_compared(client, root, two_versions):
    address = f"{LIST}{two_versions.pk}/versions/"
    assert "Version 2" in page(client, address)
    kinds = {(line.kind, line.text) for line in client.get(f"{address}2/").context["lines"]}
    assert {("same", "one"), ("removed", "two"), ("added", "three")} <= kinds
    assert {line.kind for line in client.get(f"{address}1/").context["lines"]} == {"same"}
    backwards = client.get(f"{address}1/?with=2").context["lines"]
    assert ("added", "two") in {(line.kind, line.text) for line in backwards}
    for strange in ("x", "99", "-1", "²", "9" * 400):
        assert client.get(f"{address}2/?with={strange}").status_code == 200
    for missing in (f"{LIST}99/versions/", f"{address}99/"):
        assert client.get(missing).status_code == 404


def test_an_old_version_is_restored_by_post_alone(client, root, two_versions):
    address = f"{LIST}{two_versions.pk}/versions/1/restore/"
    assert client.get(address).status_code == 405
    for stale in ("1", "", "x"):
        assert client.post(address, {"based_on": stale}).status_code == 302
        two_versions.refresh_from_db()
        assert two_versions.version == 2
    assert client.post(address, {"based_on": "2"}).status_code == 302
    two_versions.refresh_from_db()
    assert (two_versions.text, two_versions.title) == ("one\ntwo", "Old")
    assert (two_versions.version, two_versions.versions.first().author) == (3, root)
    assert "Restored version 1" in LogEntry.objects.get().change_message


def test_a_version_that_is_not_read_any_more_is_not_restored(client, root, two_versions):
    two_versions.versions.filter(number=1).update(content={"text": "{{ nobody }}"})
    address = f"{LIST}{two_versions.pk}/versions/1/restore/"
    answer = client.post(address, {"based_on": "2"}, follow=True)
    assert "cannot be restored" in answer.content.decode()
    two_versions.refresh_from_db()
    assert two_versions.text == "one\nthree"


# The list -------------------------------------------------------------------------------------


def act(client: Client, action: str, *rows: PromptText, **more: Any) -> Any:
    """Choose an action for some rows."""
    chosen = {"action": action, "_selected_action": [row.pk for row in rows]}
    return client.post(LIST, {**chosen, **more}, follow=True)


def test_the_list_says_what_keeps_a_prompt_from_being_offered(client, root):
    saved()
    saved(name="in_code")
    saved(name="gone", server="gone")
    saved(name="off", is_enabled=False)
    PromptText.objects.create(server="written", name="broken", text="{{ nobody }}")
    text = page(client, LIST)
    for words in (
        "Code has a prompt",
        "A server with this name does not exist",
        "disabled",
        "Line 1",
    ):
        assert words in text
    broken = PromptText.objects.get(name="broken")
    assert "Line 1" in page(client, f"{LIST}{broken.pk}/change/")
    assert "in_code" not in page(client, f"{LIST}?server=written&q=off")


@commits
def test_prompts_are_switched_together(client, root, server):
    rows = [saved(), saved(name="other")]
    act(client, "disable", *rows)
    assert [prompt["name"] for prompt in MCPClient(server=server).list_prompts()] == ["in_code"]
    act(client, "enable", rows[0])
    names = [prompt["name"] for prompt in MCPClient(server=server).list_prompts()]
    assert names == ["in_code", "letter"]
    assert LogEntry.objects.count() == 3


@commits
def test_a_prompt_and_its_component_lead_to_each_other(client, root, server):
    row = saved()
    sync_rows([server])
    component = Component.objects.get(server=server.name, key=row.name)
    link = f"/admin/mcp_django/component/{component.pk}/change/"
    assert f'<a href="{link}">' in client.get(f"{LIST}{row.pk}/change/").content.decode()
    shown = client.get(link).content.decode()
    assert f'<a href="{LIST}{row.pk}/change/">Edit the prompt</a>' in shown


@commits
def test_deleting_reaches_clients(client, root, server):
    rows = [saved(), saved(name="other")]
    assert len(MCPClient(server=server).list_prompts()) == 3
    act(client, "delete_selected", rows[0], post="yes")
    client.post(f"{LIST}{rows[1].pk}/delete/", {"post": "yes"})
    assert [prompt["name"] for prompt in MCPClient(server=server).list_prompts()] == ["in_code"]


def test_prompts_are_copied_to_another_server_switched_off(client, root):
    other = MCPServer("other", permission=AllowAny)
    rows = [saved(groups=["Editors"]), saved(name="twice"), saved(name="in_code", server="x")]
    saved(name="twice", server="other")
    question = act(client, "duplicate", *rows).content.decode()
    assert "<option>other</option>" in question
    assert PromptText.objects.count() == 4
    answer = act(client, "duplicate", *rows, to="other").content.decode()
    assert "2 prompts were copied" in answer
    assert "1 prompt was skipped" in answer
    copy = PromptText.objects.get(server="other", name="letter")
    assert (copy.is_enabled, copy.groups, copy.version) == (False, ["Editors"], 1)
    assert "Duplicated" in LogEntry.objects.first().change_message
    act(client, "duplicate", rows[2], to="written")
    assert not PromptText.objects.filter(server="written", name="in_code").exists()
    assert other


def test_a_list_costs_the_same_for_one_and_for_many(client, root, django_assert_max_num_queries):
    for number in range(20):
        saved(name=f"n{number}")
    with django_assert_max_num_queries(7):
        page(client, LIST)


def test_the_other_pages_cost_the_same_however_many_versions_there_are(
    client, root, django_assert_max_num_queries
):
    row = saved()
    for number in range(1, 8):
        row.text = f"Text {number}"
        PROMPTS.save(row, author=root, based_on=number)
    with django_assert_max_num_queries(12):
        page(client, f"{LIST}{row.pk}/change/")
    with django_assert_max_num_queries(6):
        page(client, f"{LIST}{row.pk}/versions/")
    with django_assert_max_num_queries(6):
        page(client, f"{LIST}{row.pk}/versions/7/")


# Who may --------------------------------------------------------------------------------------

PAGES = ("", "{pk}/change/", "{pk}/versions/", "{pk}/versions/1/")


def test_staff_without_a_permission_see_and_do_nothing(two_versions):
    client = staff()
    for path in PAGES:
        assert client.get(LIST + path.format(pk=two_versions.pk)).status_code == 403
    for path in ("preview/", "add/", "{pk}/preview/", "{pk}/change/", "{pk}/versions/1/restore/"):
        answer = client.post(LIST + path.format(pk=two_versions.pk), form(based_on="2"))
        assert answer.status_code == 403
    # What exists and what does not answer alike.
    assert client.get(f"{LIST}99/versions/").status_code == 403
    two_versions.refresh_from_db()
    assert two_versions.version == 2


def test_staff_who_may_view_change_nothing(two_versions):
    client = staff("view_prompttext")
    for path in PAGES:
        text = page(client, LIST + path.format(pk=two_versions.pk))
        assert "Restore" not in text
        assert "Preview in a new tab" not in text
    for path in ("preview/", "{pk}/preview/", "{pk}/change/", "{pk}/versions/1/restore/"):
        answer = client.post(LIST + path.format(pk=two_versions.pk), form(based_on="2"))
        assert answer.status_code == 403
    for action in ("disable", "duplicate", "delete_selected"):
        act(client, action, two_versions, to="default", post="yes")
    two_versions.refresh_from_db()
    assert (two_versions.is_enabled, PromptText.objects.count()) == (True, 1)


def test_staff_who_may_change_add_and_delete_nothing(two_versions):
    client = staff("view_prompttext", "change_prompttext")
    restored = client.post(f"{LIST}{two_versions.pk}/versions/1/restore/", {"based_on": "2"})
    assert restored.status_code == 302
    act(client, "disable", two_versions)
    two_versions.refresh_from_db()
    assert (two_versions.is_enabled, two_versions.version) == (False, 3)
    assert client.post(f"{LIST}preview/", form()).status_code == 403
    assert client.post(f"{LIST}add/", form()).status_code == 403
    act(client, "duplicate", two_versions, to="default")
    assert PromptText.objects.count() == 1


def test_nobody_else_gets_in(client, two_versions):
    for user in (None, get_user_model().objects.create_user("ada")):
        if user is not None:
            client.force_login(user)
        for path in (*PAGES, "preview/", "{pk}/versions/1/restore/"):
            answer = client.post(LIST + path.format(pk=two_versions.pk), {"based_on": "2"})
            assert answer.status_code == 302
            assert "/login/" in answer["Location"]


def test_forms_of_other_sites_change_nothing(two_versions):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(get_user_model().objects.create_superuser("root"))
    for path in ("{pk}/versions/1/restore/", "preview/", ""):
        answer = strict.post(LIST + path.format(pk=two_versions.pk), {"based_on": "2"})
        assert answer.status_code == 403
