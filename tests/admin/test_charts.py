"""Charts of the call log: what they count, who sees them, and what they cost."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import ManifestStaticFilesStorage

import mcp_django
from mcp_django.admin import statistics
from mcp_django.admin.statistics import (
    BYTES,
    MILLISECONDS,
    NOT_COUNTED,
    RANGES,
    build_chart_data,
)
from mcp_django.models import Call, Component, Server
from tests.admin.calls import called
from tests.admin.reading import has_inline_code, text_of
from tests.admin.staff import staff, superuser

pytestmark = pytest.mark.django_db
SITE = "/admin/mcp_django/call/charts/"
STATIC = Path(mcp_django.__file__).parent / "static" / "mcp_django"
CHART_JS = "338399fb5bafe598d21cfc471b0590b61ceb321a985fade4f68499b151f67fbf"
NOW = datetime(2026, 3, 4, 12, 34, 56, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def shelf_page():
    """The address of the charts of the shelf."""
    return f"/admin/mcp_django/server/{Server.objects.create(name='shelf').pk}/charts/"


def test_calls_are_counted_by_what_became_of_them(shelf_page):
    called(times=3, ms=5)
    called("clear", "failed", times=2, ms=100)
    called("clear", "limited")
    called("made up", "unknown")
    called("theirs", server="other")
    total = build_chart_data(RANGES["day"], server="shelf").total
    assert (total.calls, total.ok, total.errors, total.refused) == (7, 3, 2, 2)
    used = build_chart_data(RANGES["day"], server="shelf").components
    assert [
        (component.key, component.calls, component.errors, component.refused) for component in used
    ] == [
        ("clear", 3, 2, 1),
        ("look", 3, 0, 0),
    ]
    assert build_chart_data(RANGES["day"]).total.calls == 8
    client = superuser()
    page = text_of(client.get(shelf_page))
    assert "7 calls. 2 failed, 2 were refused." in page
    assert "made up" not in page
    assert "theirs" not in page
    assert "theirs" in text_of(client.get(SITE))


@pytest.mark.parametrize(
    ("slug", "points", "first", "step"),
    [
        ("hour", 60, datetime(2026, 3, 4, 11, 35, tzinfo=UTC), timedelta(minutes=1)),
        ("day", 24, datetime(2026, 3, 3, 13, tzinfo=UTC), timedelta(hours=1)),
        ("week", 28, datetime(2026, 2, 25, 18, tzinfo=UTC), timedelta(hours=6)),
    ],
)
def test_each_call_is_in_the_step_that_it_came_in(slug, points, first, step):
    called(at=first - timedelta(seconds=1))
    called(at=first, times=2)
    called(at=first + step - timedelta(seconds=1))
    called(at=NOW, times=4)
    chart = build_chart_data(RANGES[slug], now=NOW)
    assert len(chart.points) == points
    assert [point.at for point in chart.points[:2]] == [first, first + step]
    counts = [point.calls for point in chart.points]
    assert (counts[0], counts[-1], sum(counts)) == (3, 4, 7)


def test_calls_of_a_site_without_time_zones_are_counted_too(settings):
    settings.USE_TZ = False
    now = NOW.replace(tzinfo=None)
    called(at=now - timedelta(minutes=40), times=2)
    counts = [point.calls for point in build_chart_data(RANGES["day"], now=now).points]
    assert counts[-2:] == [2, 0]


def test_latency_is_of_calls_that_ran_to_an_end():
    for ms in range(1, 101):
        called(ms=ms)
    called(outcome="limited", ms=100_000, times=50)
    called(outcome="cancelled", ms=100_000, times=50)
    called(outcome="started", times=50)
    total = build_chart_data(RANGES["day"]).total
    assert total.median == pytest.approx(50, rel=0.1)
    assert total.p95 == pytest.approx(95, rel=0.1)


def test_few_calls_are_counted_exactly():
    called(ms=180.6)
    chart = build_chart_data(RANGES["day"])
    assert chart.is_exact
    assert (chart.total.median, chart.components[0].median) == (180.6, 180.6)
    # Of so few, the slowest twentieth is not known.
    assert (chart.total.p95, chart.components[0].p95) == (None, None)
    for ms in range(1, 40):
        called(ms=ms)
    chart = build_chart_data(RANGES["day"])
    assert chart.total.median == 20.5
    assert chart.total.p95 == pytest.approx(38.05)


def test_few_and_many_calls_are_counted_alike(monkeypatch):
    for number in range(60):
        called("look", ms=100 + number, ago=60 * number)
        called("clear", ("ok", "failed", "refused", "unknown")[number % 4], ago=60 * number)
    called("made up", "unknown")
    Component.objects.create(server="shelf", kind="tool", key="clear")
    exact = build_chart_data(RANGES["day"])
    monkeypatch.setattr(statistics, "MAX_EXACT", 5)
    counted = build_chart_data(RANGES["day"])
    assert (exact.is_exact, counted.is_exact) == (True, False)

    def numbers(chart: Any) -> list[Any]:
        return [
            (figures.calls, figures.errors, figures.refused)
            for figures in (*chart.points, *chart.components)
        ]

    assert numbers(exact) == numbers(counted)
    names = [[component.key for component in chart.components] for chart in (exact, counted)]
    # Calls that were refused as if the component did not exist are calls of it.
    assert names == [["clear", "look"]] * 2
    assert exact.total.median is not None
    assert counted.total.median == pytest.approx(exact.total.median, rel=0.6)


@pytest.mark.parametrize("scale", [MILLISECONDS, BYTES])
@pytest.mark.parametrize("value", [3.0, 47.0, 999.0, 12_345.0])
def test_what_is_read_off_lies_within_the_factor_that_is_promised(scale, value):
    number = next((n for n, bound in enumerate(scale.bounds) if value < bound), 0)
    estimate = scale.quantile({number: 9, NOT_COUNTED: 1000}, 0.5)
    assert estimate is not None
    if number:
        assert value / 1.6 <= estimate <= value * 1.6
    else:
        assert 0 <= estimate <= scale.bounds[0]


def test_bins_have_no_value_without_rows_and_the_last_one_has_its_bound():
    assert MILLISECONDS.quantile({}, 0.5) is None
    assert MILLISECONDS.quantile({NOT_COUNTED: 7}, 0.5) is None
    last = len(MILLISECONDS.bounds)
    assert MILLISECONDS.quantile({last: 1}, 0.95) == MILLISECONDS.bounds[-1]


def test_of_a_busy_log_the_newest_are_counted_and_the_page_says_so(monkeypatch, shelf_page):
    monkeypatch.setattr(statistics, "MAX_CALLS", 5)
    for seconds in range(1, 11):
        called(ago=60 * seconds)
    chart = build_chart_data(RANGES["hour"])
    assert chart.total.calls == 5
    assert chart.cut is not None
    # What is not known is not told as nothing.
    assert chart.points[0].at <= chart.cut < chart.points[1].at
    assert "Only the newest" in text_of(superuser().get(shelf_page))


@pytest.mark.parametrize(
    ("permissions", "status"), [((), 403), (("view_server",), 403), (("view_call",), 200)]
)
def test_who_may_see_them(permissions, status, shelf_page):
    client = staff(*permissions)
    for page in (SITE, shelf_page):
        assert client.get(page).status_code == status
        assert client.get(f"{page}?range=week").status_code == status


def test_they_ask_for_a_login_and_for_nothing_else_below(client, shelf_page):
    assert client.get(SITE).status_code == client.get(shelf_page).status_code == 302
    assert superuser().get(f"{shelf_page}more/").status_code == 404


@pytest.mark.parametrize("slug", ["hour", "day", "week", "nonsense"])
def test_a_page_costs_the_same_whatever_the_log_holds(
    slug, shelf_page, django_assert_max_num_queries
):
    for number in range(30):
        called(f"tool-{number}", times=3, ms=number)
    client = superuser()
    for page, most in ((SITE, 6), (shelf_page, 7)):
        with django_assert_max_num_queries(most):
            response = client.get(f"{page}?range={slug}")
        assert response.status_code == 200
        assert not has_inline_code(response)
        assert len(response.context["components"]) == statistics.MAX_COMPONENTS


def test_the_tables_say_everything_without_a_script(shelf_page):
    called("<b>look</b>", times=2, ms=7)
    _, _, html = superuser().get(shelf_page).content.decode().partition('id="content-main"')
    assert "<details open" in html
    assert html.count("<caption") == 2
    assert html.count('scope="row"') == 24 + 1
    assert 'data-value="2"' in html
    assert "&lt;b&gt;look&lt;/b&gt;" in html
    assert "<b>look</b>" not in html
    assert "component=%3Cb%3Elook" in html


def test_a_log_without_calls_is_no_table(shelf_page):
    response = superuser().get(shelf_page)
    assert "There were no calls." in text_of(response)
    assert "<table" not in response.content.decode().partition('id="content-main"')[2]


def test_the_library_is_the_published_one_with_its_license():
    library = (STATIC / "vendor" / "chartjs" / "chart.umd.js").read_bytes()
    assert hashlib.sha256(library).hexdigest() == CHART_JS
    assert b"Chart.js v4.6.1" in library[:200]
    license_ = (STATIC / "vendor" / "chartjs" / "LICENSE.md").read_text()
    assert "MIT License" in license_
    assert (
        "4.6.1"
        in (Path(mcp_django.__file__).parents[1] / "docs" / "topics" / "calls.md").read_text()
    )


def test_a_site_that_hashes_its_static_files_can_collect_these(settings, tmp_path):
    settings.STATIC_ROOT = str(tmp_path)
    storage = ManifestStaticFilesStorage(location=str(tmp_path), base_url="/static/")
    paths = {}
    for name in ("charts.js", "vendor/chartjs/chart.umd.js", "vendor/chartjs/chart.umd.js.map"):
        path = f"mcp_django/{name}"
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(Path(str(finders.find(path))).read_bytes())
        paths[path] = (storage, path)
    done = list(storage.post_process(paths))
    assert {name for name, _, result in done if result is True} == set(paths)


def test_the_call_list_leads_to_the_charts():
    called()
    page = staff("view_call").get("/admin/mcp_django/call/").content.decode()
    assert f'href="{SITE}"' in page
    assert Call.objects.count() == 1
