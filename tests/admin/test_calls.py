"""The call log in the admin: who reads it, what is found and taken out, and what that costs."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime
from html import unescape
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.db import connection, connections
from django.test import AsyncClient
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.admin import call_filters, calls
from mcp_django.admin.calls import CallAdmin
from mcp_django.models import Call, Component, Server
from mcp_django.overrides.sync import sync_rows
from mcp_django.storage import sessions
from tests.admin.calls import called
from tests.admin.reading import has_inline_code, text_of
from tests.admin.shelf import shelf
from tests.admin.staff import staff, superuser

pytestmark = pytest.mark.django_db
LIST = "/admin/mcp_django/call/"
CSV, JSON = f"{LIST}export/csv/", f"{LIST}export/json/"


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


def shown(response: Any) -> list[str]:
    """The components of the lines that a page shows."""
    return [call.component for call in response.context["cl"].result_list]


def page_of(row: Call) -> str:
    return f"{LIST}{row.pk}/change/"


# Who may --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permissions", "reads", "exports"),
    [
        ((), 403, 403),
        (("view_call",), 200, 403),
        (("export_call",), 403, 403),
        (("view_call", "export_call"), 200, 200),
    ],
)
def test_each_permission_opens_what_it_names(permissions, reads, exports):
    (row,) = called()
    client = staff(*permissions)
    assert [client.get(address).status_code for address in (LIST, page_of(row))] == [reads, reads]
    assert [client.post(address).status_code for address in (CSV, JSON)] == [exports, exports]
    offers = "Export as CSV" in client.get(LIST).content.decode()
    assert offers is (exports == 200)


def test_the_calls_of_a_page_are_in_the_order_of_their_times():
    for name, ago in (("first", 30), ("third", 10), ("second", 20)):
        called(name, ago=ago)
    text = superuser().get(LIST).content.decode()
    names = ("third", "second", "first")
    places = [text.index(f">{name}</a>") for name in names]
    assert places == sorted(places)


def test_nobody_changes_a_line():
    (row,) = called()
    client = superuser()
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(page_of(row), {"outcome": "failed"}).status_code == 403
    assert client.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.post(LIST, {"action": "delete_selected", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert row.outcome == "ok"


def test_a_stranger_is_sent_to_the_login():
    from django.test import Client

    for address in (LIST, CSV):
        assert Client().post(address).status_code == 302


# Finding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q=look", ["look"]),
        ("q=lo", []),
        ("q=lo*", ["look_up", "look"]),
        ("q=ada", ["by ada"]),
        ("q=user:7", ["by ada"]),
        ("q=Robin+7", ["by robin"]),
        ("q=client-7", ["by robin"]),
        ("q=4BF92F3577B34DA6A3CE929D0E0E4736", ["traced"]),
        ("q=trace:4BF92F3577B34DA6A3CE929D0E0E4736", ["traced"]),
        ("q=tool:look", ["look"]),
        ("q=tool:look*", ["look_up", "look"]),
        ("q=prompt:look", []),
        ("q=prompt:asked", ["asked"]),
        ("q=resource:old", ["old"]),
        ("q=component:old", ["old"]),
        ("q=user:Ada", ["by ada"]),
        ("q=ADA", ["by ada"]),
        ("q=user:ad*", ["by ada"]),
        ("q=user:user:7", ["by ada"]),
        ("q=client:client-7", ["by robin"]),
        ('q=client:"Robin+7"', ["by robin"]),
        ('q="by+robin"+client:Robin*', ["by robin"]),
        ("q=outcome:failed", ["broken"]),
        ("q=outcome:failures,asked", ["broken"]),
        ('q=component:"by+ada"+user:ada+outcome:ok', ["by ada"]),
        ("q=ada+by*", ["by ada"]),
        ("q=ada+look", []),
        ("q=broken+outcome:ok", []),
        ("q=shelf://things", []),
        ("outcome=failures", ["broken"]),
        ("outcome=failed,timeout", ["broken"]),
        ("component=look", ["look"]),
        ("component=lo*", ["look_up", "look"]),
        ("user=Ada", ["by ada"]),
        ("client=client-7", ["by robin"]),
        ("component=look&user=ada", []),
        ("outcome=failed", ["broken"]),
        ("server__exact=other", ["elsewhere"]),
        ("server__exact=nowhere", []),
        ("kind__exact=prompt", ["asked"]),
        ("origin__exact=admin", ["tried"]),
        ("writes__exact=1", ["written"]),
        ("since=hour&kind__exact=resource", []),
        ("since=week&kind__exact=resource", ["old"]),
        ("server__exact=shelf&kind__exact=tool&component=look", ["look"]),
    ],
)
def test_calls_are_found(query, expected):
    called("look")
    called("look_up")
    get_user_model().objects.create_user("ada")
    called("by ada", user_name="ada", user_key="user:7")
    called("by robin", client="Robin 7", client_id="client-7")
    called("traced", trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
    called("broken", "failed")
    called("elsewhere", server="other")
    called("asked", kind="prompt")
    called("tried", origin="admin")
    called("written", writes=True)
    called("old", kind="resource", ago=3 * 24 * 3600)
    response = superuser().get(f"{LIST}?{query}")
    assert response.status_code == 200
    assert shown(response) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("since=today", ["night", "noon"]),
        ("since=yesterday", ["eve"]),
        ("from=2026-03-01", ["night", "noon", "eve"]),
        ("from=2026-03-01&to=2026-03-01", ["eve"]),
        ("to=2026-03-01", ["eve", "before"]),
        ("from=2026-03-02T11:00", ["night", "noon"]),
        ("from=2026-03-02T12:30&to=2026-03-02T23:59", ["night"]),
        ("from=2026-03-02&since=yesterday", []),
    ],
)
def test_days_are_those_of_the_site(query, expected, settings, monkeypatch):
    settings.TIME_ZONE = "Asia/Kolkata"
    zone = ZoneInfo("Asia/Kolkata")
    now = datetime(2026, 3, 2, 23, 0, tzinfo=zone)
    monkeypatch.setattr(timezone, "now", lambda: now)
    client = superuser()
    called("before", at=datetime(2026, 2, 28, 23, 59, tzinfo=zone))
    called("eve", at=datetime(2026, 3, 1, 0, 0, tzinfo=zone))
    called("noon", at=datetime(2026, 3, 2, 12, 0, tzinfo=zone))
    called("night", at=datetime(2026, 3, 2, 22, 59, tzinfo=zone))
    assert shown(client.get(f"{LIST}?{query}")) == expected


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("q=outcome:faild", "There is no outcome “faild”. Choose from: failed."),
        ("q=outcome:zzz", "Choose from: failures, refusals, started, ok"),
        ("from=yesterday", "“yesterday” is not a date. Write it as 2026-11-28"),
        ("to=2026-02-31", "“2026-02-31” is not a date."),
        ("to=9999-12-31", "“9999-12-31” is not a date."),
        ("q=a+b+c+d+e+f+g+h+i+j+k", "Search for at most 10 words."),
    ],
)
def test_what_cannot_be_searched_for_is_said(query, words):
    called()
    response = superuser().get(f"{LIST}?{query}")
    assert words in unescape(text_of(response))
    assert shown(response) == []


def test_a_time_with_a_zone_is_read_on_a_site_without_time_zones(settings):
    settings.USE_TZ = False
    called(at=datetime(2026, 3, 2, 12, 0))  # noqa: DTZ001 - as such a site has them
    client = superuser()
    for query in ("from=2026-03-02T00:00Z", "from=2026-03-02", "to=2026-03-03T00:00%2B02:00"):
        assert shown(client.get(f"{LIST}?{query}")) == ["look"]


def test_words_that_are_repeated_cost_nothing(django_assert_max_num_queries):
    called()
    client = superuser()
    with django_assert_max_num_queries(30):
        assert client.get(f"{LIST}?q={'a+' * 500}").status_code == 200


def test_a_cell_leads_to_the_calls_like_it():
    called("look", user_name="ada", client="Robin 7", outcome="failed")
    client = superuser()
    html = client.get(f"{LIST}?outcome=failed&p=1").content.decode()
    for query in (
        "component=look&amp;outcome=failed",
        "outcome=failed&amp;server__exact=shelf",
        "outcome=failed&amp;user=ada",
        "client=Robin+7&amp;outcome=failed",
    ):
        assert f'href="?{query}"' in html


def test_outcomes_are_added_and_taken_away_one_by_one():
    called()
    client = superuser()
    html = client.get(f"{LIST}?outcome=failed").content.decode()
    assert 'href="?outcome=failed%2Ctimeout"' in html
    assert 'href="?outcome=failures"' in html
    html = client.get(f"{LIST}?outcome=failed,timeout").content.decode()
    assert 'href="?outcome=timeout"' in html
    assert client.get(f"{LIST}?outcome=nope").status_code == 302


def test_the_typed_filter_keeps_the_others():
    called()
    html = superuser().get(f"{LIST}?outcome=ok&q=look&user=ada").content.decode()
    (html,) = re.findall(r"mcp-fields-filter.*?</form>", html, re.DOTALL)
    assert '<input type="hidden" name="outcome" value="ok">' in html
    assert '<input type="hidden" name="q" value="look">' in html
    assert 'name="user" value="ada"' in html
    assert '<input type="hidden" name="user"' not in html


def test_times_have_seconds_and_on_the_page_milliseconds_and_the_zone(settings):
    settings.TIME_ZONE = "Asia/Kolkata"
    (row,) = called(at=datetime(2026, 3, 2, 6, 30, 15, 250_000, tzinfo=UTC))
    client = superuser()
    assert "12:00:15" in text_of(client.get(LIST))
    assert "12:00:15.250 IST" in text_of(client.get(page_of(row)))


def test_a_call_leads_to_its_user_and_to_calls_of_user_client_and_trace():
    user = get_user_model().objects.create_user("ada")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    (row,) = called(user_name="ada", user_key=f"user:{user.pk}", client="Robin 7", trace_id=trace)
    html = superuser().get(page_of(row)).content.decode()
    for link in (
        f"/admin/auth/user/{user.pk}/change/",
        f"{LIST}?user=ada",
        f"{LIST}?client=Robin+7",
        f"{LIST}?q=trace%3A{trace}",
    ):
        assert f'href="{link}"' in html
    (row,) = called(user_key="anonymous")
    assert "anonymous" in text_of(superuser("other").get(page_of(row)))


@pytest.mark.parametrize(
    "arguments",
    [{"where": "the <top>"}, {"where": 7, "other": [1]}, {"where": {"a": {"b": 1}}}, {}, "text"],
)
def test_a_call_is_tried_again_with_its_arguments(arguments):
    sync_rows([shelf])
    (row,) = called("look", arguments=arguments)
    client = superuser()
    html = client.get(page_of(row)).content.decode()
    (link,) = re.findall(r'<a href="([^"]+)">Try it with these arguments</a>', html)
    tried = client.get(unescape(link))
    assert tried.status_code == 200
    where = tried.context["form"]["arg.where"].value()
    if arguments == {"where": "the <top>"}:
        assert where == "the <top>"
    assert Call.objects.count() == 1
    assert "Try it with" not in staff("view_call").get(page_of(row)).content.decode()
    reader = staff("try_components")
    assert reader.get(unescape(link)).context["form"]["arg.where"].value() in (None, "")


def test_hidden_values_and_other_calls_fill_in_nothing():
    sync_rows([shelf])
    (hidden,) = called("look", arguments={"where": "[hidden]"})
    (other,) = called("clear", arguments={"where": "there"})
    client = superuser()
    pk = Server.objects.get(name="shelf").pk
    for call in (hidden.pk, other.pk, 10**17, "x", ""):
        query = {"kind": "tool", "key": "look", "call": call}
        form = client.get(f"/admin/mcp_django/server/{pk}/try/", query).context["form"]
        assert form["arg.where"].value() in (None, "")
    (unlogged,) = called("look")
    assert "Try it with" not in client.get(page_of(unlogged)).content.decode()


def test_more_than_can_be_counted_is_said(monkeypatch):
    monkeypatch.setattr(call_filters, "MAX_COUNTED", 5)
    called(times=6)
    client = superuser()
    assert "There are more than 5 calls" in text_of(client.get(LIST))
    Call.objects.all()[0].delete()
    assert "more than" not in text_of(client.get(LIST))


def test_a_list_costs_the_same_for_one_and_for_many(django_assert_max_num_queries):
    client = superuser()
    for times in (1, 150):
        called(times=times)
        with django_assert_max_num_queries(5):
            assert client.get(LIST).status_code == 200


@pytest.mark.parametrize("query", ["", "?q=look", "?q=lo*", "?outcome=ok", "?since=day"])
def test_nothing_is_counted_without_a_limit(query, monkeypatch):
    monkeypatch.setattr(CallAdmin, "list_per_page", 2)
    called(times=3)
    client = superuser()
    with CaptureQueriesContext(connection) as captured:
        client.get(f"{LIST}{query}")
    statements = [
        statement["sql"] for statement in captured if "mcp_django_call" in statement["sql"]
    ]
    assert statements
    # Neither a count of all nor a list of all values of a column.
    assert all("LIMIT" in statement for statement in statements)
    assert not any("DISTINCT" in statement for statement in statements)


# One call -------------------------------------------------------------------------------------


def test_the_page_of_a_call_tells_everything_and_runs_nothing():
    (row,) = called(
        "look",
        "invalid",
        user_name="<script>ada</script>",
        acting_user="root",
        reason="why",
        arguments={"note": "<b>bold</b>"},
        argument_names=["note"],
        problems=["items[1].price"],
        ms=12.5,
    )
    response = superuser().get(page_of(row))
    html = response.content.decode()
    assert "<b>bold" not in html
    assert "<script>ada" not in html
    text = text_of(response)
    for words in ("invalid arguments", "why", "root", "items[1].price", "bold"):
        assert words in text
    assert not has_inline_code(response)
    assert 'name="_save"' not in html


def test_a_call_leads_to_its_component_and_its_session():
    component = Component.objects.create(server="shelf", kind="tool", key="look")
    session, _ = sessions.open_session(
        "shelf",
        "anonymous",
        user_pk=None,
        protocol_version="2025-11-25",
        client_info={},
        capabilities={},
    )
    (row,) = called("look", session=session.digest)
    html = superuser().get(page_of(row)).content.decode()
    assert f"/admin/mcp_django/component/{component.pk}/change/" in html
    assert f"/admin/mcp_django/session/{session.pk}/change/" in html


def test_a_call_leads_to_its_trace(settings):
    (row,) = called("look", trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
    client = superuser()
    html = client.get(page_of(row)).content.decode()
    assert f"{row.trace_id} ·" in html
    assert f"/{row.trace_id}" not in html
    settings.MCP_DJANGO = {"TRACE_URL": "https://traces.example/t/{trace_id}?a=1&b=2"}
    html = client.get(page_of(row)).content.decode()
    assert f'href="https://traces.example/t/{row.trace_id}?a=1&amp;b=2"' in html


def test_a_call_that_never_ended_is_shown_as_such():
    called("look", "started")
    assert "started" in text_of(superuser().get(LIST))


def test_the_list_holds_under_a_strict_policy():
    called()
    assert not has_inline_code(superuser().get(LIST))


# Taking it out --------------------------------------------------------------------------------


def body(response: Any) -> str:
    return b"".join(response.streaming_content).decode()


def test_an_export_has_the_rows_of_the_filter(monkeypatch):
    monkeypatch.setattr(calls, "CHUNK", 2)
    called("look", times=5)
    called("clear")
    client = superuser()
    rows = list(csv.DictReader(io.StringIO(body(client.post(f"{CSV}?q=look")))))
    assert [row["component"] for row in rows] == ["look"] * 5
    assert len({row["id"] for row in rows}) == 5
    records = json.loads(body(client.post(JSON)))
    assert [row["component"] for row in records] == ["clear", *["look"] * 5]
    assert datetime.fromisoformat(records[0]["at"])
    assert json.loads(body(client.post(f"{JSON}?q=nothing"))) == []


def test_who_took_it_out_is_in_the_history():
    client = staff("view_call", "export_call")
    client.post(f"{CSV}?outcome=ok")
    log_entry = LogEntry.objects.get()
    assert log_entry.change_message == "Exported as CSV: outcome=ok"
    assert log_entry.user.get_username() == "staff-view_call-export_call"


@pytest.mark.parametrize("query", ["writes__exact=xyz", "outcome=nope"])
def test_a_filter_that_is_none_exports_nothing(query):
    called()
    response = superuser().post(f"{CSV}?{query}")
    assert (response.status_code, response["Location"]) == (302, f"{LIST}?e=1")
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("lookup", ["id__exact", "arguments__contains", "user_key__startswith"])
def test_what_no_filter_asks_for_is_neither_listed_nor_exported(lookup):
    called()
    client = superuser()
    assert client.get(f"{LIST}?{lookup}=a").status_code == 400
    assert client.post(f"{CSV}?{lookup}=a").status_code == 400
    assert not LogEntry.objects.exists()


def test_looking_is_no_export():
    client = superuser()
    assert client.get(CSV).status_code == 405
    assert client.post(f"{LIST}export/xml/").status_code == 404
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\r=1", "\n=1"])
def test_a_spreadsheet_finds_no_formula(name):
    called(name, "unknown", code=-32602)
    text = body(superuser().post(CSV))
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert row["component"] == f"'{name}"
    # A number of ours is one.
    assert row["code"] == "-32602"


@pytest.mark.django_db(transaction=True)
async def test_an_export_streams_under_asgi_as_well():
    from asgiref.sync import sync_to_async

    await sync_to_async(called)("look", times=3)
    user = await sync_to_async(superuser)()
    client = AsyncClient()
    client.cookies = user.cookies
    response: Any = await client.post(JSON)
    assert response.is_async
    parts = [part async for part in response.streaming_content]
    await sync_to_async(connections.close_all)()
    assert len(json.loads(b"".join(parts))) == 3
