"""Forms that are posted, to functions and to class-based views."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission

from mcp_django import MCPServer
from mcp_django.test import MCPClient
from tests.integrations.views import forms
from tests.kit.servers import person, real_client

pytestmark = pytest.mark.django_db


CHANGING = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True}


def listed(server: MCPServer, name: str) -> dict[str, Any]:
    return next(tool for tool in MCPClient(server=server).list_tools() if tool["name"] == name)


def test_a_posted_form_reaches_a_view_as_a_browser_sends_it(server):
    server.register_view("add_price", method="post", form=forms.PriceForm)
    tool = listed(server, "add_price")
    assert tool["inputSchema"]["required"] == ["amount", "day"]
    assert "annotations" not in tool
    sent = {
        "amount": "1.50",
        "day": "2026-11-21",
        "tags": ["new", "old"],
        "is_net": True,
        "when": "2026-11-21T10:00:00",
    }
    assert MCPClient(server=server).call_tool("add_price", sent).structured == {
        "added": {
            "amount": "1.50",
            "day": "2026-11-21",
            "tags": "['new', 'old']",
            "is_net": "True",
            "when": "2026-11-21 10:00:00+09:00",
        }
    }


def test_a_box_without_a_tick_is_not_sent(server):
    server.register_view("echo", method="post", form=forms.PriceForm)
    client = MCPClient(server=server)
    base = {"amount": 2, "day": "2026-11-21"}
    assert client.call_tool("echo", {**base, "is_net": False}).structured["post"] == {
        "amount": ["2"],
        "day": ["21.11.2026"],
    }
    assert client.call_tool("echo", {**base, "is_net": True}).structured["post"]["is_net"] == ["on"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"day": "2026-11-21"}, "amount: is required"),
        ({"amount": 0, "day": "2026-11-21"}, "amount: Ensure this value is greater"),
        ({"amount": 2, "day": "soon"}, 'day: Enter a valid date (got "soon")'),
        ({"amount": 2, "day": "2026-11-21", "tags": ["x"]}, "tags: Select a valid choice"),
        ({"amount": 2, "dya": "2026-11-21"}, 'unknown argument "dya"'),
    ],
)
def test_what_the_form_refuses_is_said_field_by_field(server, arguments, expected):
    server.register_view("add_price", method="post", form=forms.PriceForm)
    result = MCPClient(server=server).call_tool("add_price", arguments, check=False)
    assert result.is_error
    assert expected in result.text


def test_a_form_in_the_address_is_a_query(server):
    server.register_view("search", query=forms.PriceForm)
    result = MCPClient(server=server).call_tool("search", {"amount": 3, "day": "2026-11-21"})
    assert result.structured == {"query": {"amount": ["3"], "day": ["21.11.2026"]}}


def test_a_post_has_a_query_too(server):
    server.register_view("echo", method="post", form=forms.SearchForm, query={"page": int})
    seen = MCPClient(server=server).call_tool("echo", {"q": "a&b", "page": 2}).structured
    assert (seen["method"], seen["post"]) == ("POST", {"q": ["a&b"]})
    assert seen["url"] == "http://testserver/echo/?page=2"


def test_a_form_view_gets_its_own_form_and_says_what_it_said(server):
    server.register_form(forms.ContactView)
    tool = listed(server, "contact")
    assert tool["description"] == "Write to the shop."
    # An optional file is not an argument.
    assert list(tool["inputSchema"]["properties"]) == ["subject", "text"]
    client = MCPClient(server=server, user=person())
    result = client.call_tool("contact", {"subject": "tea"})
    assert not result.is_error
    assert result.text == (
        "Done. The site redirects to /shop/thanks/. The redirect was not followed."
        "\nMessage: Sent: tea"
    )


def test_what_only_the_view_knows_is_refused_by_the_view(server):
    server.register_form("shop:contact", name="write")
    client = MCPClient(server=server, user=person())
    result = client.call_tool("write", {"subject": "ada"}, check=False)
    assert result.is_error
    assert result.text == 'subject: Write about something else than yourself (got "ada")'
    assert client.call_tool("write", {}, check=False).text == "subject: is required"
    assert (
        "at most 20 characters"
        in client.call_tool("write", {"subject": "x" * 21}, check=False).text
    )


def test_a_form_for_those_who_signed_in_is_refused_to_others(server):
    server.register_form(forms.ContactView)
    result = MCPClient(server=server).call_tool("contact", {"subject": "tea"}, check=False)
    assert result.is_error
    assert result.text.startswith("You may not do this: the site redirects to its sign-in page, /")


def test_a_row_is_created(server):
    server.register_form(forms.AddGroupView)
    client = MCPClient(server=server)
    assert not client.call_tool("add_group", {"name": "crew"}).is_error
    again = client.call_tool("add_group", {"name": "crew"}, check=False)
    assert again.text == 'name: Group with this Name already exists (got "crew")'
    assert Group.objects.count() == 1


def test_an_update_changes_what_it_names_and_keeps_the_rest(server):
    server.register_form(forms.EditGroupView)
    schema = listed(server, "edit_group")["inputSchema"]
    assert schema["required"] == ["pk"]
    assert "default" not in schema["properties"]["note"]
    group = Group.objects.create(name="crew")
    group.permissions.set(Permission.objects.all()[:2])
    client = MCPClient(server=server)
    result = client.call_tool("edit_group", {"pk": group.pk, "is_urgent": True})
    kept = {"name": "crew", "note": "none", "is_urgent": True}
    kept["since"] = "2026-01-01T12:00:00+00:00"
    assert result.text == f"{kept}\n\n2 rights"
    renamed = client.call_tool("edit_group", {"pk": group.pk, "name": "team", "permissions": []})
    assert "0 rights" in renamed.text
    assert Group.objects.get().name == "team"


def test_null_is_left_out(server):
    server.register_form(forms.EditGroupView)
    group = Group.objects.create(name="crew")
    group.permissions.set(Permission.objects.all()[:2])
    names = ("name", "note", "is_urgent", "since", "permissions")
    sent = {"pk": group.pk, **dict.fromkeys(names), "note": ""}
    result = MCPClient(server=server).call_tool("edit_group", sent)
    assert not result.is_error, result.text
    assert "2 rights" in result.text
    assert "'note': ''" in result.text
    assert "2026-01-01T12:00:00" in result.text
    assert Group.objects.get().name == "crew"


def test_null_for_a_field_of_any_value_is_left_out(server):
    server.register_form(forms.OptionsView, name="options")
    group = Group.objects.create(name="crew")
    sent = {"pk": group.pk, "options": None}
    answer = MCPClient(server=server).call_tool("options", sent).structured
    assert answer == {"name": "crew", "options": {"a": 1}}


@pytest.mark.parametrize(
    ("view", "options", "hints"),
    [
        (forms.EditGroupView, {}, CHANGING),
        (forms.EditGroupView, {"destructive": False}, {**CHANGING, "destructiveHint": False}),
        (forms.AddGroupView, {}, {"readOnlyHint": False, "destructiveHint": False}),
        (forms.ContactView, {}, None),
    ],
)
def test_hints_follow_the_kind_of_view(server, view, options, hints):
    server.register_form(view, name="it", **options)
    assert listed(server, "it").get("annotations") == hints


def test_an_update_of_what_does_not_exist_is_not_found(server):
    server.register_form(forms.EditGroupView)
    result = MCPClient(server=server).call_tool("edit_group", {"pk": 99, "name": "x"}, check=False)
    assert result.is_error
    assert result.text == "No group found matching the query"


def test_a_row_is_deleted(server):
    server.register_form(forms.RemoveGroupView)
    group = Group.objects.create(name="crew")
    assert listed(server, "remove_group")["annotations"] == CHANGING
    assert not MCPClient(server=server).call_tool("remove_group", {"pk": group.pk}).is_error
    assert not Group.objects.exists()


def test_a_variable_of_the_url_gives_way_to_a_field_of_its_name(server):
    server.register_view("article", query={"slug": str})
    schema = listed(server, "article")["inputSchema"]
    assert list(schema["properties"]) == ["url_slug", "slug"]
    text = MCPClient(server=server).call_tool("article", {"url_slug": "tea", "slug": "x"}).text
    assert "About tea" in text


def test_a_redirect_after_a_post_is_success_with_its_messages(server):
    server.register_view("said", method="post")
    result = MCPClient(server=server).call_tool("said")
    assert not result.is_error
    assert result.text == (
        "Done. The site redirects to /who/. The redirect was not followed."
        "\nMessage: Saved.\nMessage: Twice"
    )


def test_a_row_whose_form_is_not_shown_is_not_emptied(server, caplog):
    server.register_form(forms.SilentEditView)
    group = Group.objects.create(name="crew")
    result = real_client(server=server).call_tool(
        "silent_edit", {"pk": group.pk, "name": "x"}, check=False
    )
    assert result.is_error
    assert "SilentEditView answers GET without a form" in caplog.text
    assert Group.objects.get().name == "crew"


def test_what_was_not_sent_is_kept_to_the_microsecond_and_no_password_is_typed(server):
    server.register_form(forms.MomentView, name="moments")
    group = Group.objects.create(name="crew")
    # The site reads moments in a time zone of its own.
    assert MCPClient(server=server).call_tool("moments", {"pk": group.pk}).structured == {
        "times": ["2026-01-01T12:30:15.123456+00:00"] * 2 + ["12:30:15.123456"],
        "token": "",
    }


def test_a_moment_that_is_sent_is_that_moment_whatever_the_zone_of_the_view(server):
    server.register_form(forms.MomentView, name="moments")
    group = Group.objects.create(name="crew")
    sent = {"pk": group.pk, "whole": "2026-05-01T10:00:00Z", "split": "2026-05-01T10:00:00Z"}
    answer = MCPClient(server=server).call_tool("moments", sent).structured
    assert answer["times"][:2] == ["2026-05-01T10:00:00+00:00"] * 2
