"""What the admin tells of the view of a tool."""

from __future__ import annotations

import pytest

from mcp_django import UI
from mcp_django.models import Component
from mcp_django.overrides.sync import sync_rows
from tests.admin.playground.desk import Trying
from tests.admin.reading import has_inline_code, text_of
from tests.admin.shelf import shelf
from tests.admin.staff import superuser

pytestmark = pytest.mark.django_db
EVIL = '<script>alert("x")</script>'


@pytest.fixture(autouse=True)
def _shown(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"
    ui = UI("evil.html", resources=["https://cdn.example.com"], allow=["camera"])
    settings.TEMPLATES = [
        *settings.TEMPLATES,
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "NAME": "views",
            "OPTIONS": {
                "loaders": [("django.template.loaders.locmem.Loader", {"evil.html": EVIL})]
            },
        },
    ]

    def panorama() -> str:
        """Look around."""
        return "x"

    shelf.tool(ui=ui)(panorama)
    yield
    shelf.unregister(panorama)


@pytest.mark.parametrize(
    ("kind", "key"), [("tool", "panorama"), ("resource", "ui://shelf/panorama")]
)
def test_the_page_of_a_component_tells_what_its_view_may_do(kind, key):
    client = superuser()
    sync_rows([shelf])
    row = Component.objects.get(server="shelf", kind=kind, key=key)
    response = client.get(f"/admin/mcp_django/component/{row.pk}/change/")
    text = text_of(response)
    for word in ("evil.html", "https://cdn.example.com", "camera"):
        assert word in text
    assert not has_inline_code(response)


def test_trying_a_view_shows_its_source_and_runs_nothing():
    client = superuser()
    response = Trying(shelf).run(client, "ui://shelf/panorama", kind="resource")
    assert "&lt;script&gt;alert" in response.content.decode()
    assert EVIL not in response.content.decode()
    assert not has_inline_code(response)
