"""The servers in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from mcp_django.admin.base import SERVER_PAGES
from mcp_django.models import Call, Server, Topic
from mcp_django.overrides.sync import sync_rows
from mcp_django.storage.versions import OVERRIDES, TopicKey as ListTopic, read_versions
from mcp_django.test import MCPClient
from tests.admin.shelf import shelf
from tests.admin.staff import staff, superuser

pytestmark = pytest.mark.django_db
LIST = "/admin/mcp_django/server/"
LISTS = ("tools", "resources", "prompts")


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def row():
    """The row of the shelf."""
    sync_rows([shelf])
    return Server.objects.get(name="shelf")


def page_of(row: Server) -> str:
    return f"{LIST}{row.pk}/change/"


def form(row: Server, **changes: Any) -> dict[str, Any]:
    given = {
        "is_enabled": "on" if row.is_enabled else "",
        "title": row.title,
        "instructions": row.instructions,
        "groups": row.groups,
        "permissions": row.permissions,
        "rate": row.rate,
        **changes,
    }
    return {name: value for name, value in given.items() if value not in ("", [])}


def call(**changes: Any) -> Call:
    values = {
        "at": timezone.now(),
        "server": "shelf",
        "kind": "tool",
        "component": "look",
        "user_key": "1",
        "outcome": "ok",
        "ms": 5.0,
        **changes,
    }
    return Call.objects.create(**values)


def test_the_list_shows_what_code_declares_and_what_was_called(row):
    call()
    call(component="nothing", outcome="unknown")
    page = superuser().get(LIST).content.decode()
    assert "The shelf" in page
    assert "/shelf/mcp" in page
    assert "2026-07-28" in page
    assert "2 tools, 1 resource, 1 resource template, 1 prompt" in page
    assert '<td class="field-calls">2</td>' in page


def test_a_server_that_was_last_called_long_ago_shows_when(row):
    at = timezone.now().replace(year=2024, month=3, day=5, hour=12, minute=0)
    call(at=at)
    page = superuser().get(LIST).content.decode()
    assert '<td class="field-calls">0</td>' in page
    assert '<td class="field-last_call nowrap">March 5, 2024, noon</td>' in page


def test_the_list_costs_the_same_for_one_server_and_for_many(django_assert_max_num_queries):
    client = superuser()
    client.get(LIST)
    Server.objects.bulk_create(Server(name=f"gone-{number}") for number in range(50))
    with django_assert_max_num_queries(14):
        assert client.get(LIST).status_code == 200


def test_a_server_that_code_has_no_more_is_shown_as_such(row):
    gone = Server.objects.create(name="gone")
    client = superuser()
    assert "not in the code" in client.get(LIST).content.decode()
    assert "does not have this server any more" in client.get(page_of(gone)).content.decode()
    for page in SERVER_PAGES.values():
        answer = client.get(reverse(f"admin:mcp_django_server_{page.name}", args=[gone.pk]))
        assert answer.status_code == 404
        assert "nothing to show" in answer.content.decode()


def test_no_server_is_made_or_deleted_by_hand(row):
    client = superuser()
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}add/", {"name": "new"}).status_code == 403
    assert client.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403


def test_the_page_shows_code_beside_the_admin(row):
    Server.objects.filter(pk=row.pk).update(title="Another", rate="5/m", groups=["clerks"])
    page = superuser().get(page_of(row)).content.decode()
    for text in ("The shelf", "Another", "Ask before you take.", "1000/h, 5/m", "group clerks"):
        assert text in page


def test_what_is_saved_narrows_the_server(row, django_capture_on_commit_callbacks):
    Group.objects.create(name="clerks")
    before = read_versions([ListTopic("shelf", kind) for kind in LISTS])
    with django_capture_on_commit_callbacks(execute=True):
        answer = superuser().post(
            page_of(row),
            form(
                row,
                title="Closed shelf",
                instructions="Do not touch.",
                groups=["clerks"],
                permissions=["auth.view_group"],
                rate=" 7 / h ",
            ),
        )
    assert answer.status_code == 302, answer.context["adminform"].errors
    row.refresh_from_db()
    assert (row.groups, row.permissions, row.rate) == (["clerks"], ["auth.view_group"], "7/h")
    shelf.refresh()
    assert shelf.identity()["title"] == "Closed shelf"
    assert shelf.instructions == "Do not touch."
    assert [str(rate) for rate in shelf.rates] == ["1000/h", "7/h"]
    assert [str(guard) for guard in shelf.catalog.extra_permissions] == [
        "group clerks",
        "auth.view_group",
    ]
    after = read_versions([ListTopic("shelf", kind) for kind in LISTS])
    assert all(after[topic] > before.get(topic, 0) for topic in after)
    assert len(after) == 3
    log_entry = LogEntry.objects.get()
    assert log_entry.object_repr == "shelf"


def test_what_clients_do_not_list_is_told_to_processes_alone(
    row, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        superuser().post(page_of(row), form(row, rate="7/h", title="Another"))
    assert read_versions([ListTopic("shelf", kind) for kind in LISTS]) == {}
    assert Topic.objects.filter(pk=OVERRIDES.digest).exists()


def test_what_is_no_rate_is_told_what_to_write(row):
    answer = superuser().post(page_of(row), form(row, rate="often"))
    assert "write &#x27;100/h&#x27;" in answer.content.decode()
    row.refresh_from_db()
    assert row.rate == ""


def test_a_name_that_means_nothing_any_more_stays_and_is_marked(row):
    Server.objects.filter(pk=row.pk).update(groups=["ghosts"], permissions=["no.such"])
    row.refresh_from_db()
    client = superuser()
    page = client.get(page_of(row)).content.decode()
    for name in ("ghosts", "no.such"):
        expected = f'<option value="{name}" selected>{name} (no longer exists)</option>'
        assert expected in page
    client.post(page_of(row), form(row, title="Kept"))
    row.refresh_from_db()
    assert (row.groups, row.permissions, row.title) == (["ghosts"], ["no.such"], "Kept")


def test_a_name_that_never_was_is_refused(row):
    answer = superuser().post(page_of(row), form(row, groups=["ghosts"]))
    assert answer.status_code == 200
    row.refresh_from_db()
    assert row.groups == []


def test_a_server_that_is_switched_off_lets_nobody_in(row, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        superuser().post(page_of(row), form(row, is_enabled=""))
    answer = Client().post(
        "/shelf/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        content_type="application/json",
        headers={"accept": "application/json, text/event-stream"},
    )
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("codenames", "seen", "changed"),
    [((), 403, 403), (("view_server",), 200, 403), (("change_server",), 200, 302)],
)
def test_each_permission_opens_what_it_says(row, codenames, seen, changed):
    client = staff(*codenames)
    assert client.get(LIST).status_code == seen
    assert client.get(page_of(row)).status_code == seen
    assert client.post(page_of(row), form(row, title="Mine")).status_code == changed
    row.refresh_from_db()
    assert row.title == ("Mine" if changed == 302 else "")
    if seen == 200:
        assert (b'name="_save"' in client.get(page_of(row)).content) is (changed == 302)


def test_a_user_who_is_no_staff_is_sent_to_sign_in(row, client):
    assert "/login/" in client.get(LIST)["Location"]
    for page in SERVER_PAGES.values():
        url = reverse(f"admin:mcp_django_server_{page.name}", args=[row.pk])
        assert "/login/" in client.get(url)["Location"]


def test_a_page_of_a_server_is_opened_by_its_own_permission_alone(row):
    stranger = staff("view_server")
    shown = stranger.get(page_of(row)).content.decode()
    for page in SERVER_PAGES.values():
        url = reverse(f"admin:mcp_django_server_{page.name}", args=[row.pk])
        if page.permission == "view_server":
            continue
        assert url not in shown
        assert stranger.get(url).status_code == 403
        assert stranger.get(f"{url}below/").status_code == 403


def test_a_superuser_finds_every_page_of_a_server_on_its_own_page(row):
    page = superuser().get(page_of(row)).content.decode()
    assert SERVER_PAGES
    for name in SERVER_PAGES:
        assert f'href="{reverse(f"admin:mcp_django_server_{name}", args=[row.pk])}"' in page


def test_a_page_of_no_server_is_not_found():
    client = superuser()
    for server_page in SERVER_PAGES.values():
        assert client.get(f"{LIST}999/{server_page.slug}/").status_code == 404


def test_the_override_holds_for_a_client_in_the_same_test(row, unpinned):
    assert MCPClient(server=shelf).discover()["instructions"] == "Ask before you take."
    Server.objects.filter(pk=row.pk).update(instructions="Otherwise.")
    assert MCPClient(server=shelf).discover()["instructions"] == "Otherwise."
