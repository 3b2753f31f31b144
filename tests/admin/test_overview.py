"""The front page: what is exposed, what happened and what needs attention, for whom it concerns."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.test import Client
from django.urls import path
from django.utils import timezone

from mcp_django import MCPServer
from mcp_django.admin import overview
from mcp_django.admin.approvals import ApprovalAdmin
from mcp_django.admin.calls import CallAdmin
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import (
    Approval,
    Call,
    Component,
    ModelExposure,
    PromptText,
    Server,
    Task,
)
from mcp_django.overrides.state import override_version
from mcp_django.overrides.sync import sync_rows
from tests.admin.calls import called
from tests.admin.reading import has_inline_code, text_of
from tests.admin.shelf import shelf
from tests.admin.staff import staff, superuser
from tests.admin.test_components import LIST as COMPONENTS, form, page_of

pytestmark = pytest.mark.django_db
desk = AdminSite(name="desk")
desk.register(Call, CallAdmin)
desk.register(Approval, ApprovalAdmin)
urlpatterns = [path("desk/", desk.urls)]
INDEX = "/admin/mcp_django/"


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"
    sync_rows([shelf])


def part(client: Client, name: str) -> str:
    """A section of the front page by the id of its heading, empty if it has none."""
    html = client.get(INDEX).content.decode()
    match = re.search(rf'<section aria-labelledby="{name}">.*?</section>', html, re.DOTALL)
    return match[0] if match else ""


COUNTED = re.compile(r'<a href="([^"]+)">(\d+)</a> ([^<]+)')


def links_of(html: str) -> dict[str, int]:
    """The numbers of a section, by what they count."""
    return {what.strip(): int(number) for _link, number, what in COUNTED.findall(html)}


def leads_to(client: Client, html: str) -> dict[str, int]:
    """How many rows the links of the numbers lead to."""
    return {
        what.strip(): len(client.get(unescape(link)).context["cl"].result_list)
        for link, _number, what in COUNTED.findall(html)
    }


def test_a_server_tells_what_it_offers_and_leads_to_its_pages():
    client = superuser()
    html = part(client, "mcp-servers")
    row = Server.objects.get(name="shelf")
    assert f'<a href="{INDEX}server/{row.pk}/change/">The shelf</a>' in html
    for page, title in (("connect", "Connect a client"), ("try", "Try it")):
        assert f'href="{INDEX}server/{row.pk}/{page}/">{title}</a>' in html
    assert "4 open to everybody who may connect" in " ".join(html.split())
    numbers = {
        "tools that read": 1,
        "that write": 1,
        "Resources": 1,
        "Resource templates": 1,
        "Prompts": 1,
    }
    assert links_of(html) == numbers
    assert leads_to(client, html) == numbers
    Component.objects.filter(key="look").update(is_enabled=False)
    override_version.record_change()
    html = part(client, "mcp-servers")
    assert leads_to(client, html) == links_of(html) == {**numbers, "tools that read": 0}
    assert ">on<" in html
    Server.objects.filter(pk=row.pk).update(is_enabled=False)
    assert ">off<" in part(client, "mcp-servers")


def test_the_last_day_is_counted_by_hour_and_leads_to_its_calls():
    called(times=3, user_key="user:1")
    called("look", "failed", times=2, user_key="user:2", ago=3600 * 5)
    called("look", "refused", user_key="user:2", ago=3600 * 5)
    called(times=4, ago=3600 * 30)
    called(times=0, user_key="anonymous")
    client = superuser()
    html = part(client, "mcp-day")
    words = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    for phrase in ("6 calls", "2 failed", "1 refused", "2 users"):
        assert phrase in words
    # The first hour is the rest of one.
    assert html.count('<th scope="row">') == 25
    for text, number in (("6 calls", 6), ("2 failed", 2), ("1 refused", 1)):
        (link,) = re.findall(rf'<a href="([^"]+)">{text}</a>', html)
        assert len(client.get(unescape(link)).context["cl"].result_list) == number


def test_a_day_without_calls_has_no_chart():
    html = part(superuser(), "mcp-day")
    assert "0 calls" in html
    assert "data-mcp-chart" not in html


def test_what_waits_and_what_is_broken_is_told_with_a_link():
    soon = timezone.now() + timedelta(hours=1)
    for expires in (soon, soon, soon - timedelta(hours=2)):
        Approval.objects.create(
            server="shelf", component="clear", by="staff", user_name="ada", expires_at=expires
        )
    server = MCPServer("texts", permission=AllowAny)
    PromptText.objects.create(server="gone", name="greet", text="Hello", version=1)
    ModelExposure.objects.create(server=server.name, target="shop.Nothing")
    Component.objects.filter(key="clear").update(groups="Editors")
    client = superuser()
    html = client.get(INDEX).content.decode()
    assert "2 calls wait for approval" in html
    (link,) = re.findall(r'<a href="([^"]+)">2 calls wait', html)
    assert len(client.get(unescape(link)).context["cl"].result_list) == 2
    assert len(client.get(f"{INDEX}approval/?state=expired").context["cl"].result_list) == 1
    problems = part(client, "mcp-problems")
    assert "A server with this name does not exist." in problems
    assert "shop.Nothing" in problems
    assert "invalid data, so disabled" in problems
    for link in re.findall(r'href="([^"]+)"', problems):
        assert client.get(link).status_code == 200


def test_the_last_changes_are_told_with_their_values():
    client = superuser()
    look = Component.objects.get(key="look")
    client.post(page_of(look), form(look, rate="2/m"))
    html = part(client, "mcp-changes")
    assert "root: component" in html
    assert f'<a href="{COMPONENTS}{look.pk}/change/">' in html
    assert "Rate: - → 2/m" in html
    user = client.session["_auth_user_id"]
    LogEntry.objects.log_actions(user, [look], DELETION, "")
    assert "Deleted." in part(client, "mcp-changes")


def test_all_changes_are_reached_from_the_last_ones():
    client = superuser()
    look = Component.objects.get(key="look")
    user = client.session["_auth_user_id"]
    for number in range(overview.CHANGES_PER_PAGE + 3):
        LogEntry.objects.log_actions(user, [look], CHANGE, f"change {number}.")

    def changes(query: str = "") -> list[str]:
        html = client.get(f"{INDEX}{query}").content.decode()
        return re.findall(r"change \d+\.", html)

    newest = [f"change {number}." for number in range(overview.CHANGES_PER_PAGE + 2, -1, -1)]
    assert changes() == newest[:5]
    assert 'href="?changes=1">All changes</a>' in part(client, "mcp-changes")
    assert changes("?changes=1") == newest[:50]
    assert changes("?changes=2") == newest[50:]
    assert changes("?changes=99999") == []
    for wrong in ("x", "-1", "9" * 30):
        assert changes(f"?changes={wrong}") == newest[:5]


def test_each_part_needs_its_permission():
    called()
    client = superuser()
    look = Component.objects.get(key="look")
    client.post(page_of(look), form(look, rate="2/m"))
    sections = ("mcp-servers", "mcp-day", "mcp-changes")
    for permissions, expected in (
        (("view_task",), ()),
        (("view_server",), ("mcp-servers",)),
        (("view_call",), ("mcp-day",)),
        (("view_component",), ("mcp-changes",)),
    ):
        reader = staff(*permissions)
        shown = tuple(section for section in sections if part(reader, section))
        assert shown == expected, permissions
    html = part(staff("view_server", "view_session"), "mcp-servers")
    assert "Try it" not in html
    # Numbers without links to lists that this reader may not open.
    assert "tools that read" in html
    assert links_of(html) == {}
    assert part(staff("change_server"), "mcp-servers")


def test_a_task_that_its_list_leaves_out_is_left_out_of_the_changes():
    row = Task.objects.create(
        task_id="of-anonymous",
        server="shelf",
        tool="look",
        principal="anonymous",
        protocol_version="2026-07-28",
        expires_at=timezone.now() + timedelta(hours=1),
        ttl_ms=1000,
        poll_ms=1000,
    )
    client = superuser()
    client.post(f"{INDEX}task/{row.pk}/cancel/")
    assert "of-anonymous" in part(client, "mcp-changes")
    assert "of-anonymous" not in client.get(INDEX).content.decode().replace(
        part(client, "mcp-changes"), ""
    )
    assert "of-anonymous" not in staff("view_task").get(INDEX).content.decode()


def changed_to(values: str) -> str:
    """An entry with these values."""
    return f'[{{"changed": {{"fields": ["A"], "values": [{values}]}}}}]'


@pytest.mark.parametrize(
    "message",
    [
        "[1]",
        changed_to("5"),
        changed_to('{"old": 1, "new": 2}'),
        changed_to('{"name": "x", "label": "X", "old": {}, "new": 2}'),
        changed_to('{"name": "missing_since", "label": "X", "old": "2026-13-45T00:00", "new": 1}'),
        '{"a": 1}',
        "plain",
    ],
)
def test_an_entry_that_another_program_wrote_closes_no_page(message):
    client = superuser()
    look = Component.objects.get(key="look")
    LogEntry.objects.log_actions(client.session["_auth_user_id"], [look], CHANGE, message)
    assert client.get(INDEX).status_code == 200
    assert client.get(f"{INDEX}component/{look.pk}/history/").status_code == 200


def test_long_values_are_cut_here_and_whole_in_the_history():
    client = superuser()
    look = Component.objects.get(key="look")
    client.post(page_of(look), form(look, description="word " * 500))
    assert part(client, "mcp-changes").count("word") < 50
    history = client.get(f"{INDEX}component/{look.pk}/history/").content.decode()
    assert history.count("word") >= 500


def test_another_site_of_the_admin_shows_its_models_alone(settings):
    settings.ROOT_URLCONF = "tests.admin.test_overview"
    html = superuser().get("/desk/mcp_django/").content.decode()
    assert re.findall(r'id="mcp-model-(\w+)"', html) == ["call", "approval"]
    assert 'href="/admin/' not in html


def test_models_are_in_groups_and_each_is_there_once():
    html = superuser().get(INDEX).content.decode()
    html = html[html.index('id="content-main"') :]
    captions = re.findall(r"<caption>([^<]+)</caption>", html)
    assert captions == ["What is exposed", "Who has access", "What happened", "Rarely used"]
    names = re.findall(r'id="mcp-model-(\w+)"', html)
    # Access to other services is only listed if a server needs it.
    assert len(names) == len(set(names)) == 15
    assert names[:2] == ["server", "component"]


def test_the_page_holds_under_a_strict_policy_and_costs_the_same_for_many_calls(
    django_assert_max_num_queries,
):
    client = superuser()
    for times in (1, 300):
        called(times=times)
        with django_assert_max_num_queries(40):
            response = client.get(INDEX)
        assert not has_inline_code(response)
    assert "Not available" not in text_of(response)
    assert overview.MAX_CHANGES == 5
