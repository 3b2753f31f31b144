"""A site that a browser can reach, a client that waits for its redirect, and the browser."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.test.testcases import LiveServerThread

from tests.kit.services import chromium
from tests.oauth import parties
from tests.oauth.asking import AUTHORIZE, CHALLENGE
from tests.oauth.upstream.conftest import acme  # noqa: F401 - a fixture

SECONDS = 60


@dataclass
class Callback:
    """The client's end: a program on a loopback port, and the parameters that it received."""

    url: str = ""
    parameters: dict[str, list[str]] = field(default_factory=dict)


@pytest.fixture
def callback():
    """A program on this computer that waits for the redirect."""
    waiting = Callback()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/callback":
                waiting.parameters = parse_qs(parts.query)
            self.send_response(200 if parts.path == "/callback" else 204)
            self.end_headers()
            self.wfile.write(b"Go back to your assistant.")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    waiting.url = f"http://127.0.0.1:{server.server_port}/callback"
    yield waiting
    server.shutdown()
    server.server_close()


@pytest.fixture
def live(transactional_db, site):
    """The base URL of the OAuth test site on a port, with its static files."""
    site.MIDDLEWARE = [*site.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    thread = LiveServerThread("127.0.0.1", static_handler=StaticFilesHandler)
    thread.daemon = True
    thread.start()
    assert thread.is_ready.wait(SECONDS)
    if thread.error:
        raise thread.error
    yield f"http://127.0.0.1:{thread.port}"
    thread.terminate()


@pytest.fixture(scope="module")
def chrome():
    """A running Chromium."""
    from playwright.sync_api import sync_playwright

    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Playwright leaves a running loop in this thread, so Django assumes that the code is async.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visitor:
    """One person's browser."""

    page: Any
    live: str
    errors: list[str]

    def open(self, path: str) -> None:
        self.page.goto(f"{self.live}{path}")

    def sign_in(self, name: str) -> None:
        self.page.fill("input[name=username]", name)
        self.page.fill("input[name=password]", name)
        self.page.click("[type=submit]")
        self.page.wait_for_url(lambda url: "/login/" not in url)

    def expect_statuses(self, *statuses: int) -> None:
        """Assert that the browser logged these statuses of documents and no other error."""
        assert len(self.errors) == len(statuses), self.errors
        assert all(
            str(status) in error for status, error in zip(statuses, self.errors, strict=True)
        )
        self.errors.clear()

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def connect(self, app: Any, **changes: Any) -> None:
        values = {
            "response_type": "code",
            "client_id": app.client_id,
            "redirect_uri": app.redirect_uris.split()[0],
            "scope": "mcp mcp:write orders:refund",
            "state": "abc",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "resource": f"{self.live}/mcp",
        }
        query = {name: value for name, value in (values | changes).items() if value is not None}
        self.open(f"{AUTHORIZE}?{urlencode(query)}")


@pytest.fixture
def visit(chrome, live):
    """A function that opens a browser window; an error in its console fails the test."""
    contexts, errors = [], []

    def complain(message: Any) -> None:
        # Browsers request an icon, which the site does not have.
        if message.type == "error" and not message.location["url"].endswith("/favicon.ico"):
            errors.append(message.text)

    def start(**options: Any) -> Visitor:
        context = chrome.new_context(**options)
        context.set_default_timeout(SECONDS * 1000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: errors.append(str(error)))
        return Visitor(page=page, live=live, errors=errors)

    yield start
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def ada(live):
    """A user who can sign in."""
    return parties.make_user("ada")


@pytest.fixture
def program(live, callback):
    """A client on this computer that registered itself."""
    return parties.make_app(name="Example Client", redirect_uris=callback.url)
