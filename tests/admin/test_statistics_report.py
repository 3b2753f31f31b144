"""The tool quality report: what it finds, who sees it, and the same as a file."""

from __future__ import annotations

import csv
import re
from datetime import timedelta
from html import unescape
from io import StringIO

import pytest

from mcp_django.admin import statistics
from mcp_django.admin.statistics import (
    RANGES,
    ComponentQuality,
    build_chart_data,
    build_quality_report,
)
from mcp_django.models import Component, Server
from mcp_django.overrides.sync import sync_rows
from tests.admin.calls import called
from tests.admin.reading import has_inline_code, text_of
from tests.admin.shelf import shelf
from tests.admin.staff import staff, superuser

pytestmark = pytest.mark.django_db
MONTH = timedelta(days=30)


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def page():
    """The address of the report of the shelf."""
    return f"/admin/mcp_django/server/{Server.objects.create(name='shelf').pk}/report/"


def keys(components: list[ComponentQuality]) -> list[str]:
    return [component.key for component in components]


def test_what_nobody_called_is_told():
    called("look")
    called("clear", ago=31 * 24 * 3600)
    called("recommend", server="other", kind="prompt")
    assert keys(build_quality_report(shelf, MONTH).never_used) == [
        "recommend",
        "shelf://about",
        "shelf://books/{name}",
        "clear",
    ]
    assert "clear" not in keys(build_quality_report(shelf, 3 * MONTH).never_used)


def test_what_was_used_before_the_counted_calls_was_used(monkeypatch):
    monkeypatch.setattr(statistics, "MAX_CALLS", 2)
    called("clear", ago=3600)
    called("look", ago=60, times=2)
    called("look", ago=30, times=2)
    report = build_quality_report(shelf, MONTH)
    assert report.cut is not None
    assert "clear" not in keys(report.never_used)
    assert next(component for component in report.every if component.key == "clear").calls == 0


def test_what_fails_most_comes_first_and_too_few_calls_say_nothing():
    called("look", times=8)
    called("look", "error", times=1)
    called("look", "timeout", times=1)
    called("clear", times=1)
    called("clear", "failed", times=4)
    called("about", "failed", times=4)
    components = build_quality_report(shelf, MONTH).failing
    rates = [
        (component.key, component.failures, component.calls, component.failure_rate)
        for component in components
    ]
    assert rates == [("clear", 4, 5, 0.8), ("look", 2, 10, 0.2)]


def test_arguments_that_models_get_wrong_are_counted_once_for_each_call():
    called("look", "invalid", times=3, problems=["where", "where", "when"])
    called("look", "invalid", problems=["where"])
    called("clear", "invalid", problems=["<b>items</b>[0].price"])
    called("look", "invalid", problems={"odd": 1})
    arguments = [
        (component.key, path, n) for component, path, n in build_quality_report(shelf, MONTH).wrong
    ]
    assert arguments == [
        ("look", "where", 4),
        ("look", "when", 3),
        ("clear", "<b>items</b>[0].price", 1),
    ]
    assert next(o for o in build_quality_report(shelf, MONTH).every if o.key == "look").invalid == 5


def test_wrong_arguments_are_read_from_so_many_calls_and_no_more(monkeypatch):
    monkeypatch.setattr(statistics, "MAX_INVALID", 2)
    called("look", "invalid", ago=60, times=2, problems=["new"])
    called("look", "invalid", ago=600, times=5, problems=["old"])
    assert [(path, n) for _, path, n in build_quality_report(shelf, MONTH).wrong] == [("new", 2)]


def test_answers_are_weighed_without_errors():
    called("look", times=99, bytes=1000)
    called("look", bytes=40_000)
    called("look", "error", bytes=10**6)
    called("clear", bytes=8)
    first, second = build_quality_report(shelf, MONTH).biggest
    assert first.key == "look"
    assert first.mean_bytes == pytest.approx(1390)
    assert first.tokens == 348
    assert first.p95_bytes == pytest.approx(1000, rel=0.6)
    assert (second.key, second.tokens) == ("clear", 2)


def test_the_slowest_come_first():
    called("look", times=50, ms=10)
    called("clear", times=50, ms=3000)
    called("about", "limited", ms=9000)
    components = build_quality_report(shelf, MONTH).slowest
    assert keys(components) == ["clear", "look"]
    assert components[0].median_ms == pytest.approx(3000, rel=0.6)
    assert components[1].p95_ms == pytest.approx(10, rel=0.6)


def test_who_was_kept_out_is_counted():
    called("look", "refused", times=2)
    called("look", "denied")
    called("clear", "limited", times=5)
    called("made up", "unknown", times=9)
    counts = [
        (component.key, component.refused, component.limited)
        for component in build_quality_report(shelf, MONTH).refused
    ]
    assert counts == [("clear", 0, 5), ("look", 3, 0)]


def test_a_component_that_left_the_code_is_told_of_without_a_link(page):
    called("gone", "failed", times=9)
    row = Component.objects.create(server="shelf", kind="tool", key="look")
    called("look", "failed", times=9)
    html = superuser().get(page).content.decode()
    assert f'<a href="/admin/mcp_django/component/{row.pk}/change/">look</a>' in html
    assert '<th scope="row">gone<br>' in html
    log = "/admin/mcp_django/call/?server__exact=shelf&amp;kind__exact=tool&amp;component=gone"
    assert re.search(rf'<a href="{re.escape(log)}&amp;from=[^"&]+">9</a>', html)
    assert re.search(rf'<a href="{re.escape(log)}&amp;outcome=failures&amp;from=[^"]+">9</a>', html)
    assert "gone" not in keys(build_quality_report(shelf, MONTH).never_used)


def test_a_component_without_a_row_is_told_of_and_has_a_link_once_it_has_one(page):
    called("look", "failed", times=9)
    client = superuser()
    html = client.get(page).content.decode()
    assert '<th scope="row">look<br>' in html
    assert not Component.objects.exists()
    sync_rows([shelf])
    html = client.get(page).content.decode()
    pk = Component.objects.get(server="shelf", kind="tool", key="look").pk
    assert f'<a href="/admin/mcp_django/component/{pk}/change/">look</a>' in html


def test_the_page_says_all_that_and_escapes_it(page):
    called("look", "invalid", times=6, problems=["<script>x</script>"])
    called("look", times=6, ms=20, bytes=400)
    called("clear", "limited")
    client = superuser()
    response = client.get(f"{page}?days=7")
    text = text_of(response)
    for words in ("Most failing", "50.0", "get wrong", "estimate", "Slowest", "Never used"):
        assert words in text
    assert not has_inline_code(response)
    assert "&lt;script&gt;x" in response.content.decode()
    log = client.get("/admin/mcp_django/call/?outcome=invalid&component=look")
    assert log.status_code == 200


def test_a_server_without_calls_has_a_report(page):
    text = text_of(superuser().get(page))
    assert text.count("None.") == 5
    assert "shelf://about" in text


@pytest.mark.parametrize(
    ("permissions", "status"), [((), 403), (("view_server",), 403), (("view_call",), 200)]
)
def test_who_may_see_it(permissions, status, page):
    client = staff(*permissions)
    assert client.get(page).status_code == status
    assert client.get(f"{page}csv/").status_code == status
    assert client.get(f"{page}other/").status_code == (404 if status == 200 else status)


def test_it_asks_for_a_login(client, page):
    assert client.get(page).status_code == client.get(f"{page}csv/").status_code == 302


def test_the_file_has_every_component_and_no_formula(page):
    called("look", times=4, ms=20, bytes=400)
    called("look", "invalid", problems=["=cmd()", "where"])
    called("=HYPERLINK(1)", "failed")
    response = superuser().get(f"{page}csv/?days=7")
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response["Content-Disposition"] == ('attachment; filename="shelf-quality-7-days.csv"')
    rows = {row["component"]: row for row in csv.DictReader(StringIO(response.content.decode()))}
    assert rows["'=HYPERLINK(1)"]["failed"] == "1"
    assert rows["about" if "about" in rows else "shelf://about"]["used"] == "no"
    look = rows["look"]
    assert (look["calls"], look["failed"], look["failure_rate"]) == ("5", "1", "0.2")
    assert (look["mean_bytes"], look["estimated_tokens"]) == ("400.0", "100")
    assert look["wrong_arguments"] in {"'=cmd() (1); where (1)", "where (1); =cmd() (1)"}


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\r=1", "\n=1"])
def test_a_spreadsheet_finds_no_formula(name, page):
    called(name, "failed")
    text = superuser().get(f"{page}csv/?days=7").content.decode()
    assert f"'{name}" in {row["component"] for row in csv.DictReader(StringIO(text, newline=""))}


def test_figures_of_many_calls_are_those_of_the_charts(monkeypatch):
    bounds = statistics.MILLISECONDS.bounds
    for number in range(40):
        # Also on the bounds of the bins, where the two ways to count could differ.
        called("look", ms=bounds[number % 12] if number % 2 else 7.5 * number, ago=60)
    exact = build_quality_report(shelf, timedelta(days=1))
    monkeypatch.setattr(statistics, "MAX_EXACT", 5)
    report = build_quality_report(shelf, timedelta(days=1))
    (charted,) = statistics.build_chart_data(statistics.RANGES["day"]).components
    (counted,) = (component for component in report.every if component.key == "look")
    assert (exact.is_exact, report.is_exact) == (True, False)
    assert (counted.median_ms, counted.p95_ms) == (charted.median, charted.p95)


@pytest.mark.parametrize("days", ["", "?days=7", "?days=1000000", "?days=x"])
def test_it_costs_the_same_whatever_the_log_holds(days, page, django_assert_max_num_queries):
    for number in range(30):
        called(f"tool-{number}", times=2, ms=number, bytes=number)
        called(f"tool-{number}", "invalid", times=5, problems=["a", "b"])
    client = superuser()
    # Components get their rows, as when somebody opens the list of them.
    client.get(page)
    for address in (page, f"{page}csv/"):
        with django_assert_max_num_queries(13):
            assert client.get(f"{address}{days}").status_code == 200


def test_calls_of_a_hidden_component_are_counted_as_in_the_charts(page):
    Component.objects.create(server="shelf", kind="tool", key="look")
    called("look", times=2)
    called("look", "unknown", times=3)
    called("made up", "unknown", times=4)
    called("look", "unknown", kind="prompt")
    (row,) = (
        component for component in build_quality_report(shelf, MONTH).every if component.calls
    )
    assert (row.key, row.calls, row.refused) == ("look", 5, 3)
    (charted,) = build_chart_data(RANGES["day"], server="shelf").components
    assert (charted.key, charted.calls, charted.refused) == ("look", 5, 3)
    html = superuser().get(page).content.decode()
    (link,) = set(re.findall(r'<a href="(/admin/mcp_django/call/[^"]*)">5</a>', html))
    assert len(superuser("other").get(unescape(link)).context["cl"].result_list) == 5
