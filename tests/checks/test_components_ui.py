"""The checks of the views of tools (MCP Apps)."""

import weakref

import pytest
from django.test import override_settings

from mcp_django import UI, server as server_module
from mcp_django.checks.components import check_apps
from tests.kit.servers import open_to_all

PAGES = {
    "good.html": "<!doctype html><a href='https://elsewhere.example/'>x</a>{% load static %}"
    "<img src=\"{% static 'a.png' %}\"><script src='https://cdn.example.com/a.js'></script>",
    "broken.html": "{% if %}",
    "blocked.html": '<!doctype html><link rel="stylesheet" href="//cdn.example.com/a.css">'
    '<iframe title="x" src="https://video.example.com/1"></iframe>',
}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(server_module, "_servers", weakref.WeakSet())
    engine = {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {"loaders": [("django.template.loaders.locmem.Loader", PAGES)]},
    }
    with override_settings(TEMPLATES=[engine]):
        yield open_to_all()


@pytest.mark.parametrize(
    ("ui", "expected"),
    [
        (UI("good.html", resources=["https://*.example.com"]), []),
        (UI("missing.html"), ["E015"]),
        (UI("broken.html"), ["E015"]),
        (UI("blocked.html"), ["W018", "W018"]),
        (
            UI(
                "blocked.html",
                resources=["https://cdn.example.com"],
                frames=["https://video.example.com"],
            ),
            [],
        ),
        (UI(uri="ui://inline/other"), []),
        (UI(uri="ui://inline/nothing"), ["E016"]),
        (UI(uri="ui://inline/text"), ["E016"]),
        (UI(visibility=["app"]), []),
    ],
)
def test_a_view_that_cannot_be_shown_is_found(server, ui, expected):
    server.tool("other", ui=UI("good.html", resources=["https://cdn.example.com"]))(lambda: "x")
    server.resource("ui://inline/text")(lambda: "x")
    server.tool("tool", ui=ui)(lambda: "x")
    messages = check_apps(None)
    assert [str(message.id).removeprefix("mcp_django.") for message in messages] == expected
    assert all(message.hint and "'tool'" in message.msg for message in messages)


def test_the_hint_of_a_blocked_file_can_be_pasted(server):
    server.tool("tool", ui="blocked.html")(lambda: "x")
    first, second = check_apps(None)
    assert "UI('blocked.html', resources=['https://cdn.example.com'])" in str(first.hint)
    assert "UI('blocked.html', frames=['https://video.example.com'])" in str(second.hint)
