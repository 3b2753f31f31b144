"""A host of MCP Apps: its page and its sandbox at two origins, and a proxy to the demo's endpoints.

The page is not a page of the site, so its requests go through this server. It adds the token, as
hosts do that keep the token from their pages.
"""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.interop.node import install

PROJECT = Path(__file__).parent / "apps"
BUILT = PROJECT / "node_modules" / ".built"
SECONDS = 90
DIRECTIVES = {
    "resourceDomains": ("script-src", "style-src", "img-src", "font-src", "media-src"),
    "connectDomains": ("connect-src",),
    "frameDomains": ("frame-src",),
    "baseUriDomains": ("base-uri",),
}
DEFAULTS = {
    "default-src": "'none'",
    "script-src": "'self' 'unsafe-inline'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data:",
    "font-src": "",
    "media-src": "'self' data:",
    "connect-src": "",
    "frame-src": "",
    "object-src": "",
    "base-uri": "",
}
PASSED = ("content-type", "accept", "mcp-protocol-version", "mcp-session-id")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL and the token for requests to one path."""

    url: str
    token: str


@dataclass(frozen=True, slots=True)
class Host:
    """The address of the host's page."""

    page: str


def policy(csp: Mapping[str, list[str]]) -> str:
    """Return the policy of a view that declares this, as SEP-1865 defines it for hosts."""
    sources_by_name = dict(DEFAULTS)
    for name, directives in DIRECTIVES.items():
        for directive in directives:
            sources_by_name[directive] = " ".join(
                [sources_by_name[directive], *csp.get(name, [])]
            ).strip()
    return "; ".join(
        f"{name} {sources or chr(39) + 'none' + chr(39)}"
        for name, sources in sources_by_name.items()
    )


class Handler(BaseHTTPRequestHandler):
    """Serves the files of the host, and passes other requests on."""

    def __init__(self, endpoints: Mapping[str, Endpoint], *args: Any) -> None:
        self.endpoints = endpoints
        super().__init__(*args)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path.startswith("/built/"):
            self._answer(200, (BUILT / Path(parts.path).name).read_bytes(), "text/javascript")
        elif parts.path == "/host.html":
            self._answer(200, (PROJECT / "host.html").read_bytes(), "text/html")
        elif parts.path == "/sandbox.html":
            csp = json.loads(parse_qs(parts.query)["csp"][0])
            page = (PROJECT / "sandbox.html").read_bytes()
            self._answer(200, page, "text/html", {"Content-Security-Policy": policy(csp)})
        else:
            self._answer(405, b"", "text/plain")

    def do_POST(self) -> None:
        self._pass_on("POST")

    def do_DELETE(self) -> None:
        self._pass_on("DELETE")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _pass_on(self, verb: str) -> None:
        endpoint = self.endpoints[urlsplit(self.path).path]
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() in PASSED or name.lower().startswith("mcp-")
        }
        headers["Authorization"] = f"Bearer {endpoint.token}"
        request = urllib.request.Request(endpoint.url, body or None, headers, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                status, answer_headers, content = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as exc:
            status, answer_headers, content = exc.code, exc.headers, exc.read()
        extra = (
            {"Mcp-Session-Id": session_id}
            if (session_id := answer_headers.get("mcp-session-id"))
            else {}
        )
        self._answer(status, content, answer_headers.get("content-type", "text/plain"), extra)

    def _answer(
        self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def running_host(endpoints: Mapping[str, Endpoint]) -> Iterator[Host]:
    """Yield the host, built from the packages in the lock file."""
    install(PROJECT)
    subprocess.run(["npm", "run", "-s", "build"], cwd=PROJECT, check=True, timeout=SECONDS)
    with ExitStack() as stack:
        page, sandbox = (stack.enter_context(_serving(endpoints)) for _ in range(2))
        yield Host(f"{page}/host.html?sandbox={sandbox}")


@contextmanager
def _serving(endpoints: Mapping[str, Endpoint]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, endpoints)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(SECONDS)
