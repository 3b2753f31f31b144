"""The front page: what is exposed, what happened and what needs attention, for whom it concerns."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.test import Client
from django.utils import timezone

from mcp_django import MCPServer
from mcp_django.admin import overview
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Approval, Component, ModelExposure, PromptText, Server
from mcp_django.overrides.sync import sync_rows
from tests.admin.calls import called
from tests.admin.reading import has_inline_code, text_of
from tests.admin.shelf import shelf
from tests.admin.staff import staff, superuser
from tests.admin.test_components import LIST as COMPONENTS, form, page_of

pytestmark = pytest.mark.django_db
INDEX = "/admin/mcp_django/"


@pytest.fixture(autouse=True)
def _site(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.admin.urls"
    sync_rows([shelf])


def part(client: Client, name: str) -> str:
    """A section of the front page by the id of its heading, empty if it has none."""
    html = client.get(INDEX).content.decode()
    found = re.search(rf'<section aria-labelledby="{name}">.*?</section>', html, re.DOTALL)
    return found[0] if found else ""


def test_a_server_tells_what_it_offers_and_leads_to_its_pages() -> None:
    client = superuser()
    html = part(client, "mcp-servers")
    row = Server.objects.get(name="shelf")
    assert f'<a href="{INDEX}server/{row.pk}/change/">The shelf</a>' in html
    for page, title in (("connect", "Connect a client"), ("try", "Try it")):
        assert f'href="{INDEX}server/{row.pk}/{page}/">{title}</a>' in html
    counted = re.findall(r'<a href="([^"]+)">(\d+)</a> ([^<]+)', html)
    told = {what.strip(): int(number) for _link, number, what in counted}
    assert told == {
        "tools that read": 1,
        "that write": 1,
        "resources and prompts": 3,
        "open to everybody who may connect": 4,
    }
    for link, number, what in counted:
        if what.strip() in ("tools that read", "that write"):
            assert len(client.get(unescape(link)).context["cl"].result_list) == int(number)
    assert ">on<" in html
    Server.objects.filter(pk=row.pk).update(is_enabled=False)
    assert ">off<" in part(client, "mcp-servers")


def test_the_last_day_is_counted_by_hour_and_leads_to_its_calls() -> None:
    called(times=3, user_key="user:1")
    called("look", "failed", times=2, user_key="user:2", ago=3600 * 5)
    called("look", "refused", user_key="user:2", ago=3600 * 5)
    called(times=4, ago=3600 * 30)
    client = superuser()
    html = part(client, "mcp-day")
    words = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    for one in ("6 calls", "2 failed", "1 refused", "2 users"):
        assert one in words
    assert html.count('<th scope="row">') == 24
    for text, number in (("6 calls", 6), ("2 failed", 2), ("1 refused", 1)):
        (link,) = re.findall(rf'<a href="([^"]+)">{text}</a>', html)
        assert len(client.get(unescape(link)).context["cl"].result_list) == number


def test_a_day_without_calls_has_no_chart() -> None:
    html = part(superuser(), "mcp-day")
    assert "0 calls" in html
    assert "data-mcp-chart" not in html


def test_what_waits_and_what_is_broken_is_told_with_a_link() -> None:
    soon = timezone.now() + timedelta(hours=1)
    for expires in (soon, soon, soon - timedelta(hours=2)):
        Approval.objects.create(
            server="shelf", component="clear", by="staff", user_name="ada", expires_at=expires
        )
    MCPServer("texts", permission=AllowAny)
    PromptText.objects.create(server="gone", name="greet", text="Hello", version=1)
    ModelExposure.objects.create(server="texts", target="shop.Nothing")
    Component.objects.filter(key="clear").update(groups="Editors")
    client = superuser()
    html = client.get(INDEX).content.decode()
    assert "2 calls wait for approval" in html
    listed = client.get(f"{INDEX}approval/?state__exact=pending")
    assert listed.status_code == 200
    problems = part(client, "mcp-problems")
    assert "A server with this name does not exist." in problems
    assert "shop.Nothing" in problems
    assert "invalid data, so disabled" in problems
    for link in re.findall(r'href="([^"]+)"', problems):
        assert client.get(link).status_code == 200


def test_the_last_changes_are_told_with_their_values() -> None:
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


def test_all_changes_are_reached_from_the_last_ones() -> None:
    client = superuser()
    look = Component.objects.get(key="look")
    user = client.session["_auth_user_id"]
    for number in range(overview.CHANGES_PER_PAGE + 3):
        LogEntry.objects.log_actions(user, [look], CHANGE, f"change {number}.")

    def told(query: str = "") -> list[str]:
        html = client.get(f"{INDEX}{query}").content.decode()
        return re.findall(r"change \d+\.", html)

    newest = [f"change {number}." for number in range(overview.CHANGES_PER_PAGE + 2, -1, -1)]
    assert told() == newest[:5]
    assert 'href="?changes=1">All changes</a>' in part(client, "mcp-changes")
    assert told("?changes=1") == newest[:50]
    assert told("?changes=2") == newest[50:]
    assert told("?changes=99999") == []
    for wrong in ("x", "-1", "9" * 30):
        assert told(f"?changes={wrong}") == newest[:5]


def test_each_part_needs_its_permission() -> None:
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
        shown = tuple(one for one in sections if part(reader, one))
        assert shown == expected, permissions
    assert "Try it" not in part(staff("view_server", "view_session"), "mcp-servers")


def test_models_are_in_groups_and_each_is_there_once() -> None:
    html = superuser().get(INDEX).content.decode()
    html = html[html.index('id="content-main"') :]
    captions = re.findall(r"<caption>([^<]+)</caption>", html)
    assert captions == ["What is exposed", "Who has access", "What happened", "Rarely used"]
    names = re.findall(r'id="mcp-model-(\w+)"', html)
    # Access to other services is only listed if a server needs it.
    assert len(names) == len(set(names)) == 15
    assert names[:2] == ["server", "component"]


def test_the_page_holds_under_a_strict_policy_and_costs_the_same_for_many_calls(
    django_assert_max_num_queries: Any,
) -> None:
    client = superuser()
    for times in (1, 300):
        called(times=times)
        with django_assert_max_num_queries(40):
            response = client.get(INDEX)
        assert not has_inline_code(response)
    assert "Not available" not in text_of(response)
    assert overview.MAX_CHANGES == 5
