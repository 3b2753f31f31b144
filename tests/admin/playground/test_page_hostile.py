"""Names, texts and answers that want to be markup, and requests that nobody would send."""

import pytest

from mcp_django.admin.playground.answers import safe_media_type
from tests.admin.playground.desk import NASTY, visitor

pytestmark = pytest.mark.django_db


@pytest.fixture
def client():
    return visitor("try_components")


def test_what_the_site_wrote_is_never_markup(trying, client):
    pages = [
        trying.get(client),
        trying.get(client, q=NASTY),
        trying.get(client, kind="tool", key="nasty"),
        trying.get(client, kind="tool", key=NASTY),
        trying.get(client, kind=NASTY, key=NASTY, revision=NASTY),
        trying.run(client, "nasty", {"arg.word": "=<b>bold</b>"}),
        trying.run(client, "nasty", {"arg.word": NASTY}),
        trying.run(client, "every_block"),
        trying.run(client, "fails", {"arg.how": "=tool"}),
        trying.post(client, "add_group", {"do": "run", "arg.name": NASTY}),
        trying.post(client, "brief", {"suggest": "topic", "arg.topic": NASTY}, kind="prompt"),
        trying.post(
            client, "desk://groups/{name}", {"suggest": "name", "arg.name": "x"}, kind="template"
        ),
        trying.post(client, "echo", {"suggest": NASTY}),
    ]
    for page in pages:
        html = page.content.decode()
        assert "<script>" not in html
        assert "<b>bold" not in html


@pytest.mark.parametrize(
    ("media_type", "served"),
    [
        ("image/png", "image/png"),
        ("IMAGE/PNG; charset=x", "image/png"),
        ("image/svg+xml", "application/octet-stream"),
        ("text/html", "application/octet-stream"),
        ("application/xhtml+xml", "application/octet-stream"),
        ("image/png\r\nX-Evil: 1", "application/octet-stream"),
        ("", "application/octet-stream"),
    ],
)
def test_nothing_is_served_that_a_browser_would_run(media_type, served):
    assert safe_media_type(media_type) == served


def test_huge_arguments_are_cut_where_they_are_shown(trying, client):
    response = trying.run(client, "echo", {"arg.text": "x" * 300_000})
    assert response.status_code == 200
    [[request, _answer]] = response.context["raw"]
    assert len(request) < 10_000


def test_a_number_of_too_many_digits_is_refused_by_the_form(trying, client):
    response = trying.run(client, "later", {"arg.a": "9" * 5000})
    assert response.context["form"].errors
    response = trying.run(client, "later", {"arg.a": "9" * 50})
    assert response.status_code == 200


def test_a_request_that_no_page_sends_shows_a_page(trying, client):
    for data in ({}, {"do": "nonsense"}, {"do": "answer"}, {"suggest": ""}, {"state": "x:y:z"}):
        assert trying.post(client, "echo", data).status_code == 400
    for do in ("run", "preview"):
        response = trying.post(client, "echo", {"do": do, "arg.colors": ["=green"]})
        assert response.status_code == 200
        assert response.context["form"].errors


def test_a_server_whose_code_is_gone_has_nothing_to_try(trying, client):
    trying.row.name = "gone"
    trying.row.save()
    assert trying.get(client).status_code == 404
