"""The user of a client in another process: opens addresses, signs in, consents.

The client's script sends `{"authorize": URL}` and receives the final address;
`{"expire": true}` lets every access token expire, because no test waits for an hour.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.oauth.live.browser import Browser
from tests.oauth.live.site import Site


@contextmanager
def person_at(site: Site) -> Iterator[str]:
    """Run a server that executes these commands for a user; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            command = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                answer = _do(site, command)
                status = 200
            except Exception as exc:  # noqa: BLE001 - the script has to be told whatever it is
                answer, status = {"error": repr(exc)}, 500
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join(timeout=10)


def _do(site: Site, command: dict[str, Any]) -> dict[str, Any]:
    if "authorize" in command:
        with Browser() as browser:
            return {"landed": browser.authorize(command["authorize"])}
    site.expire_access_tokens()
    return {}
