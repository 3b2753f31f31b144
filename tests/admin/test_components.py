"""The components of all servers in the admin."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Annotated, Any

import pytest
from django import forms
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from pydantic import Field

from mcp_django import MCPServer
from mcp_django.admin import statistics
from mcp_django.admin.components import describe_audience
from mcp_django.auth.permissions import (
    MODEL_BACKEND,
    BasePermission,
    HasCodename,
    IsAuthenticated,
    filter_allowed,
)
from mcp_django.models import Call, Component, Server
from mcp_django.overrides.state import override_version
from mcp_django.overrides.sync import sync_rows
from mcp_django.storage.versions import TopicKey as ListTopic, read_versions
from tests.admin.reading import text_of
from tests.admin.shelf import shelf
from tests.admin.staff import staff, superuser
from tests.admin.theming import unthemed

pytestmark = pytest.mark.django_db
LIST = "/admin/mcp_django/component/"
TOOLS, RESOURCES, PROMPTS = (ListTopic("shelf", kind) for kind in ("tools", "resources", "prompts"))
ALL = (TOOLS, RESOURCES, PROMPTS)


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def look():
    """The row of a tool."""
    return row_of("look")


def row_of(key: str) -> Component:
    sync_rows([shelf])
    return Component.objects.get(server="shelf", key=key)


def missing(key: str = "gone") -> Component:
    return Component.objects.create(
        server="shelf", kind="tool", key=key, name=key, missing_since=timezone.now()
    )


def page_of(row: Component) -> str:
    return f"{LIST}{row.pk}/change/"


def form(row: Component, **changes: Any) -> dict[str, Any]:
    given = {
        "is_enabled": "on" if row.is_enabled else "",
        **{name: getattr(row, name) for name in ("title", "description", "groups", "permissions")},
        "scopes": " ".join(row.scopes),
        "rate": row.rate,
        "approval": row.approval,
        **changes,
    }
    return {name: value for name, value in given.items() if value not in ("", [])}


def editing(rows: list[Component], *, off: Component) -> dict[str, Any]:
    """The list as it is sent, with one of its rows switched off."""
    data: dict[str, Any] = {
        "form-TOTAL_FORMS": len(rows),
        "form-INITIAL_FORMS": len(rows),
        "_save": "Save",
    }
    for number, row in enumerate(rows):
        data[f"form-{number}-id"] = row.pk
        data[f"initial-form-{number}-is_enabled"] = str(row.is_enabled)
        if row != off:
            data[f"form-{number}-is_enabled"] = "on"
    return data


def act(client: Client, action: str, *rows: Component, **more: Any) -> Any:
    data = {"action": action, "_selected_action": [row.pk for row in rows], "index": 0, **more}
    # Only missing ones can be deleted.
    query = "?missing=yes" if action == "delete_selected" else ""
    return client.post(f"{LIST}{query}", data)


def calls(count: int, **changes: Any) -> None:
    now = timezone.now()
    values = {
        "server": "shelf",
        "kind": "tool",
        "component": "look",
        "user_key": "1",
        "outcome": "ok",
        **changes,
    }
    Call.objects.bulk_create(
        Call(at=now - timedelta(seconds=number), ms=float(number), **values)
        for number in range(count)
    )


def names(response: Any) -> set[str]:
    return {row.key for row in response.context["cl"].result_list if row.server == "shelf"}


# The list -----------------------------------------------------------------------------------------


def test_the_list_has_every_kind_with_what_code_says():
    sync_rows([shelf])
    response = superuser().get(LIST, {"server": "shelf"})
    assert names(response) == {
        *("look", "clear", "shelf://about", "shelf://books/{name}", "recommend"),
    }
    page = response.content.decode()
    assert 'tool <span class="mcp-quiet">shelf · read-only</span>' in page
    assert "destructive · auth.delete_group</span>" in page


def test_the_list_counts_calls_and_errors_of_the_last_day():
    sync_rows([shelf])
    calls(3)
    calls(2, outcome="failed")
    calls(1, outcome="refused")
    calls(4, kind="prompt")
    Call.objects.create(
        at=timezone.now() - timedelta(days=2),
        server="shelf",
        kind="tool",
        component="look",
        user_key="1",
        outcome="ok",
    )
    (row,) = superuser().get(LIST, {"q": "look", "kind": "tool"}).context["cl"].result_list
    assert (row.figures.calls, row.figures.errors) == (6, 2)


def test_the_numbers_of_the_list_lead_to_the_calls_that_they_count():
    sync_rows([shelf])
    calls(3)
    calls(2, outcome="failed")
    client = superuser()
    html = client.get(LIST, {"server": "shelf"}).content.decode()
    links = re.findall(r'field-(calls|errors)"><a href="([^"]+)">(\d+)</a>', html)
    assert [(name, number) for name, _link, number in links] == [("calls", "5"), ("errors", "2")]
    for _name, link, number in links:
        rows = client.get(unescape(link)).context["cl"].result_list
        assert len(rows) == int(number)


def test_a_component_of_a_server_that_is_off_says_so(look):
    client = superuser()
    Server.objects.filter(name="shelf").update(is_enabled=False)
    (state,) = {
        text.strip()
        for text in re.findall(
            r'field-state">([^<]*)<', client.get(LIST, {"server": "shelf"}).content.decode()
        )
    }
    assert state == "server is off"
    assert "Its server is disabled" in text_of(client.get(page_of(look)))


def test_the_page_leads_to_everything_about_the_component(look):
    calls(2)
    client = superuser()
    html = client.get(page_of(look)).content.decode()
    pk = Server.objects.get(name="shelf").pk
    query = "kind=tool&amp;key=look"
    for link, title in (
        (f"/admin/mcp_django/server/{pk}/try/?{query}", "Try it"),
        (f"/admin/mcp_django/server/{pk}/charts/?{query}", "Charts"),
        (f"/admin/mcp_django/server/{pk}/seen/?{query}", "What a client sees"),
    ):
        assert f'<a href="{link}">{title}</a>' in html
        assert client.get(unescape(link)).status_code == 200
    (log,) = re.findall(r'mcp-tool"><a href="([^"]+)">Calls</a>', html)
    assert len(client.get(unescape(log)).context["cl"].result_list) == 2


def test_the_page_offers_only_what_its_reader_may_open(look):
    html = staff("view_component").get(page_of(look)).content.decode()
    assert "/try/" not in html
    assert "/call/?" not in html
    assert "/charts/" not in html


def test_charts_of_one_component_count_only_its_calls(look):
    calls(2)
    calls(3, component="clear")
    pk = Server.objects.get(name="shelf").pk
    address = f"/admin/mcp_django/server/{pk}/charts/"
    client = superuser()
    assert client.get(address).context["numbers"].total.calls == 5
    response = client.get(address, {"kind": "tool", "key": "look"})
    assert response.context["numbers"].total.calls == 2
    assert "Only the calls of look." in text_of(response)
    assert 'href="?kind=tool&amp;key=look&amp;range=hour"' in response.content.decode()


# Whom a component is offered to -------------------------------------------------------------------


def test_a_page_says_how_many_users_can_use_the_component(look):
    client = superuser()
    assert "Everybody can use it, also without an account." in text_of(client.get(page_of(look)))
    clear = row_of("clear")
    text = text_of(client.get(page_of(clear)))
    assert "1 of 1 active users can use it. OAuth tokens need the scopes shelf:write." in text
    editors = Group.objects.create(name="Editors")
    editors.permissions.add(Permission.objects.get(codename="delete_group"))
    users = get_user_model().objects
    for name in ("ada", "bob", "eve"):
        user = users.create_user(name)
        if name != "eve":
            user.groups.add(editors)
    users.create_user("gone", is_active=False).groups.add(editors)
    assert "3 of 4 active users can use it." in text_of(client.get(page_of(clear)))
    Component.objects.filter(pk=clear.pk).update(groups=["Editors"])
    override_version.record_change()
    users.get(username="bob").groups.clear()
    assert "2 of 4 active users can use it." in text_of(client.get(page_of(clear)))


def test_a_page_says_which_permission_no_user_has(look):
    client = staff("view_component")
    text = text_of(client.get(page_of(row_of("clear"))))
    assert "0 of 1 active users can use it. No active user has auth.delete_group." in text


def test_a_rule_of_the_site_is_named_and_not_counted(look):
    class OnMondays(BasePermission):
        """Some code of the site."""

    server = MCPServer("own", permission=OnMondays)
    server.tool(read_only=True)(look_around)
    component = next(iter(server.catalog))
    assert describe_audience(server, component) == [
        "At most 0 of 0 active users can use it.",
        "Whether they can is also decided by OnMondays.",
    ]


def test_a_rule_that_is_narrower_than_what_it_inherits_is_not_counted_by_that():
    class IsManager(IsAuthenticated):
        def has_permission(self, principal: Any) -> bool:
            return False

    class IsLead(IsManager):
        def filter_users(self, users: Any) -> Any:
            return users.none()

    users = get_user_model().objects.all()
    assert filter_allowed(IsManager(), users) is None
    assert filter_allowed(IsLead(), users) is not None
    assert filter_allowed(IsAuthenticated(), users) is not None


def test_users_are_not_counted_where_others_give_permissions(settings):
    settings.AUTHENTICATION_BACKENDS = (MODEL_BACKEND,)
    users = get_user_model().objects.all()
    assert HasCodename("auth.delete_group").filter_users(users) is not None
    settings.AUTHENTICATION_BACKENDS = [MODEL_BACKEND, "site.ldap.Backend"]
    assert HasCodename("auth.delete_group").filter_users(users) is None


def look_around() -> str:
    """Look around."""
    return "books"


def test_the_median_is_that_of_the_latest_calls(monkeypatch):
    monkeypatch.setattr(statistics, "MEDIAN_SAMPLE_SIZE", 5)
    sync_rows([shelf])
    calls(50)
    calls(1, component="clear")
    page = superuser().get(LIST, {"server": "shelf", "kind": "tool"})
    medians = {row.key: row.figures.ms for row in page.context["cl"].result_list}
    # The latest took 0 ms, the one before it 1 ms, and so on.
    assert medians == {"look": 2.0, "clear": 0.0}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"kind": "prompt"}, {"recommend"}),
        ({"app": "example"}, set()),
        ({"read_only": "yes"}, {"look"}),
        ({"destructive": "yes"}, {"clear"}),
        ({"is_enabled__exact": "0"}, {"recommend"}),
        ({"overridden": "yes"}, {"clear"}),
        (
            {"overridden": "no"},
            {"look", "shelf://about", "shelf://books/{name}", "recommend", "gone"},
        ),
        ({"missing": "yes"}, {"gone"}),
        ({"q": "books"}, {"shelf://books/{name}"}),
        # Words of the descriptions in code, whatever their case.
        ({"q": "recommend BOOK"}, {"recommend"}),
        ({"q": "closely"}, {"look"}),
    ],
)
def test_the_list_is_filtered(query, expected):
    missing()
    for key, changes in (("recommend", {"is_enabled": False}), ("clear", {"rate": "1/h"})):
        Component.objects.filter(pk=row_of(key).pk).update(**changes)
    Component.objects.filter(key="gone").update(missing_since=timezone.now())
    assert names(superuser().get(LIST, {"server": "shelf", **query})) == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scopes": "shelf:write,shelf:read"}, "Separate scopes with spaces, not with commas."),
        ({"scopes": "shelf:wrote"}, "Did you mean 'shelf:write'?"),
        ({"rate": "0/m"}, "allows no calls: write a count of 1 or more, or clear “Enabled”."),
    ],
)
def test_what_would_lock_everybody_out_is_refused_beside_its_box(look, changes, words):
    response = superuser().post(page_of(look), form(look, **changes))
    (name,) = changes
    (error,) = response.context["adminform"].form.errors[name]
    assert words in error


def test_a_long_description_is_saved_with_a_warning(look):
    client = superuser()
    short, long = "word " * 199, "word " * 400
    response = client.post(page_of(look), form(look, description=short), follow=True)
    assert "of the context of every model" not in text_of(response)
    look.refresh_from_db()
    response = client.post(page_of(look), form(look, description=long), follow=True)
    assert "“Description” has 1999 characters. It takes about 501 tokens" in text_of(response)
    look.refresh_from_db()
    assert look.description == long.strip()
    # Saving other fields does not repeat it.
    response = client.post(page_of(look), form(look, rate="5/m"), follow=True)
    assert "of the context of every model" not in text_of(response)


def test_one_is_switched_off_in_the_list(look, django_capture_on_commit_callbacks):
    client = superuser()
    rows = list(Component.objects.filter(server="shelf"))
    with django_capture_on_commit_callbacks(execute=True) as callbacks:
        answer = client.post(f"{LIST}?server=shelf", editing(rows, off=look))
    assert answer.status_code == 302
    assert not Component.objects.get(pk=look.pk).is_enabled
    assert Component.objects.filter(is_enabled=False).count() == 1
    assert len(callbacks) == 1
    shelf.refresh()
    assert "look" not in shelf.catalog.tools
    assert set(read_versions(ALL)) == {TOOLS}
    log_entry = LogEntry.objects.get()
    assert (log_entry.object_id, log_entry.action_flag) == (str(look.pk), CHANGE)
    assert log_entry.get_change_message() == "Changed Enabled."


def test_the_list_of_a_thousand_opens_with_few_queries(django_assert_max_num_queries):
    client = superuser()
    client.get(LIST)
    Component.objects.bulk_create(
        Component(
            server="shelf",
            kind="tool",
            key=f"tool-{number}",
            name="x",
            missing_since=timezone.now(),
        )
        for number in range(1000)
    )
    calls(200, component="tool-7")
    with django_assert_max_num_queries(18):
        response = client.get(LIST, {"missing": "yes"})
    assert len(response.context["cl"].result_list) == 50


# Several at once ----------------------------------------------------------------------------------


def test_several_are_switched_off_and_on(look, django_capture_on_commit_callbacks):
    client = superuser()
    recommend = row_of("recommend")
    with django_capture_on_commit_callbacks(execute=True) as callbacks:
        act(client, "disable", look, recommend)
    assert len(callbacks) == 1
    assert Component.objects.filter(is_enabled=False).count() == 2
    assert set(read_versions(ALL)) == {TOOLS, PROMPTS}
    assert LogEntry.objects.filter(action_flag=CHANGE).count() == 2
    # What is so already is not changed again.
    act(client, "disable", look)
    assert LogEntry.objects.count() == 2
    act(client, "enable", look, recommend)
    assert not Component.objects.filter(is_enabled=False).exists()


def test_overrides_are_cleared_and_what_is_off_stays_so(look):
    Component.objects.filter(pk=look.pk).update(
        is_enabled=False, title="T", rate="1/h", groups=["g"], scopes=["s"], approval="staff"
    )
    act(superuser(), "clear_overrides", look)
    look.refresh_from_db()
    assert (look.title, look.rate, look.groups, look.scopes, look.approval) == ("", "", [], [], "")
    assert not look.is_enabled


# One component ------------------------------------------------------------------------------------


def test_the_page_shows_code_the_override_and_what_comes_of_both():
    clear = row_of("clear")
    Component.objects.filter(pk=clear.pk).update(
        title="Empty it", groups=["clerks"], scopes=["extra"], rate="5/m", approval="staff"
    )
    page = superuser().get(page_of(clear)).content.decode()
    for text in (
        "auth.delete_group and group clerks",
        "shelf:write, extra",
        "Staff approve each call",
        "Empty it",
        "about ",
        "tests.admin.shelf",
    ):
        assert text in page, text


def test_the_page_names_what_was_changed_in_the_schemas_for_clients(look):
    browser = superuser()
    assert "TypeScript SDK" not in browser.get(page_of(look)).content.decode()

    @shelf.tool
    def weigh(parcel: str) -> list[Annotated[float, Field(multiple_of=0.01)]]:
        """Weigh a parcel."""
        return [19.99]

    try:
        page = text_of(browser.get(page_of(row_of("weigh"))))
    finally:
        shelf.unregister(weigh)
    assert "so that all known clients accept them" in page
    assert "output: items: the fractional multipleOf is in the description" in page


class UnmigratedForm(forms.Form):
    """Has a field for each row of a table that is not there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        raise OperationalError("no such table: <parcels>")


def test_the_page_says_why_clients_do_not_see_a_component(look):
    @shelf.tool(form=UnmigratedForm)
    def weigh(form: Any) -> str:
        """Weigh a parcel."""
        return "heavy"

    browser = superuser()
    try:
        page = browser.get(page_of(row_of("weigh")))
        listed = browser.get(LIST)
    finally:
        shelf.unregister(weigh)
    assert "Clients do not see this component" in text_of(page)
    assert "OperationalError: no such table: &lt;parcels&gt;" in page.content.decode()
    assert listed.status_code == 200
    assert "Clients do not see" not in text_of(browser.get(page_of(look)))


def test_what_code_says_is_escaped(look):
    page = superuser().get(page_of(look)).content.decode()
    assert "<b>closely</b>" not in page
    assert "&lt;b&gt;closely&lt;/b&gt;" in page


def test_what_is_saved_narrows_the_component(look, django_capture_on_commit_callbacks):
    Group.objects.create(name="clerks")
    changes = {
        "title": "Peek",
        "description": "Peek at it.",
        "groups": ["clerks"],
        "permissions": ["auth.view_group"],
        "scopes": "orders:read mcp",
        "rate": "5/m",
        "approval": "caller",
    }
    with django_capture_on_commit_callbacks(execute=True):
        answer = superuser().post(page_of(look), form(look, **changes))
    assert answer.status_code == 302, answer.context["adminform"].errors
    shelf.refresh()
    tool = shelf.catalog.tools["look"]
    assert (tool.title, tool.description, tool.approval) == ("Peek", "Peek at it.", "caller")
    assert (tool.scopes, [str(rate) for rate in tool.rates]) == (("orders:read", "mcp"), ["5/m"])
    assert [str(permission) for permission in tool.permission if permission] == [
        "group clerks",
        "auth.view_group",
    ]
    assert set(read_versions(ALL)) == {TOOLS}
    assert "Title" in LogEntry.objects.get().get_change_message()


@pytest.mark.parametrize("changes", [{"rate": "5/m"}, {"approval": "staff"}])
def test_what_no_list_shows_is_told_to_processes_alone(
    look, django_capture_on_commit_callbacks, changes
):
    with django_capture_on_commit_callbacks(execute=True):
        superuser().post(page_of(look), form(look, **changes))
    assert read_versions(ALL) == {}
    shelf.refresh()
    assert shelf.catalog.tools["look"] != shelf.tools["look"]


@pytest.mark.parametrize("text", ['a"b', "a\\b", "offline_access", "ümlaut"])
def test_what_is_no_scope_is_refused(look, text):
    answer = superuser().post(page_of(look), form(look, scopes=f"fine {text}"))
    assert "is not a valid scope for a component" in answer.content.decode()
    look.refresh_from_db()
    assert look.scopes == []


def test_approval_is_for_tools_alone():
    recommend = row_of("recommend")
    client = superuser()
    assert 'name="approval"' not in client.get(page_of(recommend)).content.decode()
    client.post(page_of(recommend), form(recommend, approval="staff"))
    recommend.refresh_from_db()
    assert recommend.approval == ""


def test_a_missing_one_is_shown_as_what_it_was():
    page = superuser().get(page_of(missing())).content.decode()
    assert "This component is no longer in code" in page
    assert "gone" in page


# Who may ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codenames", "seen", "changed"),
    [
        ((), 403, 403),
        (("view_component",), 200, 403),
        (("delete_component",), 403, 403),
        (("change_component",), 200, 302),
    ],
)
def test_each_permission_opens_what_it_says(look, codenames, seen, changed):
    client = staff(*codenames)
    rows = list(Component.objects.filter(server="shelf"))
    assert client.get(LIST).status_code == seen
    assert client.get(page_of(look)).status_code == seen
    assert client.post(page_of(look), form(look, title="Mine")).status_code == changed
    assert client.post(LIST, editing(rows, off=look)).status_code == changed
    act(client, "disable", *rows)
    act(client, "clear_overrides", *rows)
    look.refresh_from_db()
    is_allowed = changed == 302
    assert look.is_enabled is not is_allowed
    assert LogEntry.objects.exists() is is_allowed


def test_a_visit_changes_nothing_without_a_post(look):
    client = superuser()
    client.get(LIST, {"action": "disable", "_selected_action": look.pk})
    client.get(page_of(look), form(look, title="Mine"))
    look.refresh_from_db()
    assert (look.is_enabled, look.title) == (True, "")


def test_none_is_made_by_hand():
    client = superuser()
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}add/", {"key": "new"}).status_code == 403


def test_what_code_has_cannot_be_deleted(look):
    client = superuser()
    assert client.post(f"{LIST}{look.pk}/delete/", {"post": "yes"}).status_code == 403
    act(client, "delete_selected", look, missing(), post="yes")
    assert Component.objects.filter(pk=look.pk).exists()
    assert "delete_selected" not in client.get(LIST).content.decode()
    assert "delete_selected" in client.get(LIST, {"missing": "yes"}).content.decode()


def test_the_form_shows_the_texts_in_code_as_placeholders(look):
    html = superuser().get(page_of(look)).content.decode()
    assert 'placeholder="Look"' in html
    assert 'placeholder="Look at the shelf &lt;b&gt;closely&lt;/b&gt;."' in html


def test_what_is_missing_is_deleted_by_who_may(look):
    first, second, third = missing("first"), missing("second"), missing("third")
    stranger = staff("change_component")
    assert stranger.post(f"{LIST}{first.pk}/delete/", {"post": "yes"}).status_code == 403
    act(stranger, "delete_selected", second, post="yes")
    assert Component.objects.filter(pk__in=[first.pk, second.pk]).count() == 2
    client = staff("delete_component", "view_component")
    assert client.post(f"{LIST}{first.pk}/delete/", {"post": "yes"}).status_code == 302
    act(client, "delete_selected", second, third, post="yes")
    assert not Component.objects.exclude(missing_since=None).exists()
    assert LogEntry.objects.filter(action_flag=DELETION).count() == 3


@pytest.mark.outside
def test_a_theme_brings_the_class_of_all_screens():
    # The class is chosen when the modules are imported, so another process has to say.
    assert unthemed("tests.admin.theming_class.ThemedAdmin") == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rate": "5/h, 0/m"}, "0/m allows no calls: write a count of 1 or more"),
        ({"rate": "often"}, "is not a valid rate; write"),
        ({"scopes": "mcp order:read"}, "scope 'order:read' does not exist"),
        ({"scopes": "zzz"}, "Known: "),
        ({"description": "x" * 10_001}, "at most 10000 characters (it has 10001)"),
    ],
)
def test_what_would_shut_everybody_out_or_flood_a_model_gets_a_sentence(changes, sentence):
    look = row_of("look")
    answer = superuser().post(page_of(look), form(look, **changes))
    assert answer.status_code == 200
    assert sentence in unescape(answer.content.decode())
    look.refresh_from_db()
    assert (look.rate, look.scopes, look.description) == ("", [], "")


def test_a_scope_that_was_chosen_when_there_was_one_may_stay():
    look = row_of("look")
    Component.objects.filter(pk=look.pk).update(scopes=["gone:read"])
    look.refresh_from_db()
    assert superuser().post(page_of(look), form(look, title="New")).status_code == 302
    look.refresh_from_db()
    assert (look.title, look.scopes) == ("New", ["gone:read"])


def test_a_rejected_form_says_what_is_stored(look):
    client = superuser()
    sent = form(look, is_enabled="", title="Not yet", rate="0/m")
    page = client.post(page_of(look), sent)
    assert page.status_code == 200
    text = text_of(page)
    assert "Please correct the error" in text
    assert "This component is disabled" not in text
    # In the form, but not in the comparison with the code.
    assert text.count("Not yet") == 0
    assert 'value="Not yet"' in page.content.decode()
    look.refresh_from_db()
    assert look.is_enabled
