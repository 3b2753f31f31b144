"""`manage.py mcp doctor URL` against a site in another process."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from mcp_django.management.doctor_hosts import HOSTS
from tests.kit.processes import free_port
from tests.management.console import attempt
from tests.oauth.live.site import Site

pytestmark = [pytest.mark.outside, pytest.mark.timeout(600)]
# The site is on this machine, which hosts in the cloud cannot reach.
LOCAL = [host for host in HOSTS.values() if not host.is_cloud]


def charts(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    outcome = attempt("doctor", *arguments, "--json")
    hosts = json.loads(outcome.out)["hosts"]
    return outcome.status, {
        host["host"]: {step["step"]: step for step in host["steps"]} for host in hosts
    }


def clients(site: Site) -> int:
    with closing(sqlite3.connect(site.database)) as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM oauth2_provider_application").fetchone()
    return int(count)


def test_a_site_is_examined_over_http_and_left_as_it_was(live):
    before = clients(live)
    names = [part for host in LOCAL for part in ("--host", host.slug)]
    status, hosts = charts(live.mcp, *names)
    assert status == 0
    assert hosts["vscode"]["registration"]["verdict"] == "skipped"
    assert "--register" in hosts["vscode"]["registration"]["found"]
    # A metadata document needs no registration, so the flow is followed to its end.
    assert hosts["claude-code"]["authorization"]["verdict"] == "ok"
    assert hosts["claude-code"]["token"]["verdict"] == "ok"
    assert clients(live) == before


def test_a_host_is_registered_where_that_is_asked_for(live):
    before = clients(live)
    status, hosts = charts(live.mcp, "--host", "vscode", "--register")
    assert status == 0
    assert {step["verdict"] for step in hosts["vscode"].values()} == {"ok"}
    assert clients(live) == before + 1


def test_a_cloud_cannot_call_this_machine(live):
    status, hosts = charts(live.mcp, "--host", "chatgpt")
    assert status == 1
    assert hosts["chatgpt"]["address"]["verdict"] == "failed"


def test_a_prefix_is_no_hindrance_to_hosts_that_know_paths(prefixed):
    status, hosts = charts(prefixed.mcp, "--host", "vscode", "--register")
    assert status == 0
    assert hosts["vscode"]["issuer"]["found"] == prefixed.issuer


def test_nobody_there_is_told(live):
    status, hosts = charts(f"http://127.0.0.1:{free_port()}/mcp", "--host", "vscode")
    assert status == 1
    assert "does not respond" in hosts["vscode"]["endpoint"]["found"]


@contextmanager
def answering(status: int, **headers: str) -> Iterator[str]:
    """Run a server that always sends the same response; yield the address of its endpoint."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()

        do_GET = do_OPTIONS = do_POST

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join(timeout=10)


@pytest.mark.parametrize(
    ("status", "headers", "step", "words"),
    [
        (301, {"Location": "https://x.example/mcp"}, "endpoint", "https:// address"),
        (302, {"Location": "/login/"}, "endpoint", "LoginRequiredMiddleware"),
        (403, {}, "endpoint", "firewall"),
        (404, {}, "endpoint", "path('mcp', mcp.urls)"),
        (405, {}, "endpoint", "pass POST"),
        (500, {}, "endpoint", "log"),
        (502, {}, "endpoint", "proxy"),
        (401, {"WWW_Authenticate": 'Bearer resource_metadata="x"'}, "resource metadata", "include"),
    ],
)
def test_what_stands_before_the_site_is_recognized(status, headers, step, words):
    with answering(status, **headers) as url:
        code, hosts = charts(url, "--host", "vscode")
    assert code == 1
    assert hosts["vscode"][step]["verdict"] == "failed"
    assert words in hosts["vscode"][step]["fix"]
