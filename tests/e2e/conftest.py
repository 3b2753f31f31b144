"""Two processes of the demo on one database, and the browser of its administrators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.visitor import SECONDS, Visitor
from tests.interop.demo_site import DemoServer, running_demo
from tests.kit.services import chromium

SETTINGS = "tests.e2e.settings"


@dataclass(frozen=True, slots=True)
class Site:
    """The process that serves the admin, and the one that serves the clients."""

    admin: DemoServer
    clients: DemoServer


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Yield the demo, started twice in one directory."""
    var = tmp_path_factory.mktemp("administrated")
    with (
        running_demo(var, DJANGO_SETTINGS_MODULE=SETTINGS) as admin,
        running_demo(var, DJANGO_SETTINGS_MODULE=SETTINGS) as clients,
    ):
        yield Site(admin, clients)


@pytest.fixture(scope="module")
def chrome():
    """Yield a running Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def signed_in(chrome, site):
    """Return a function that signs an account in, once, and returns its browser's state."""
    kept: dict[str, Any] = {}

    def sign_in(name: str) -> Any:
        if name not in kept:
            context = chrome.new_context()
            Visitor(context.new_page(), site.admin.site).sign_in(name)
            kept[name] = context.storage_state()
            context.close()
        return kept[name]

    return sign_in


@pytest.fixture
def visit(chrome, site, signed_in):
    """Yield a function that opens a window of an account; an error in its console is a failure."""
    opened: list[tuple[Any, Visitor]] = []

    def start(name: str = "admin", **options: Any) -> Visitor:
        context = chrome.new_context(storage_state=signed_in(name), **options)
        context.set_default_timeout(SECONDS * 1000)
        visitor = Visitor(context.new_page(), site.admin.site)
        visitor.page.on("console", visitor.note)
        visitor.page.on("pageerror", lambda error: visitor.errors.append(str(error)))
        opened.append((context, visitor))
        return visitor

    yield start
    for context, _ in opened:
        context.close()
    assert [visitor.errors for _, visitor in opened if visitor.errors] == []
