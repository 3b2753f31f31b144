"""The site, which writes a line of JSON for each request to the file of `MCP_TEST_REQUESTS`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.interop.framework_site.settings")
django.setup()

from mcp_django.asgi import get_asgi_application  # noqa: E402


class Recorder:
    """Passes requests on; the line of a request is written when its response begins."""

    def __init__(self, application: Any, path: Path) -> None:
        self._application = application
        self._path = path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body = b""

        async def hear() -> Any:
            nonlocal body
            event = await receive()
            body += event.get("body", b"")
            return event

        async def say(event: Any) -> None:
            if event["type"] == "http.response.start":
                self._write(scope, headers, body, event["status"])
            await send(event)

        await self._application(scope, hear, say)

    def _write(self, scope: Any, headers: dict[str, str], body: bytes, status: int) -> None:
        line = {
            "http": scope["method"],
            "path": scope["path"],
            "method": json.loads(body).get("method") if body else None,
            "revision": headers.get("mcp-protocol-version"),
            "agent": headers.get("user-agent"),
            "status": status,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")


application = Recorder(get_asgi_application(), Path(os.environ["MCP_TEST_REQUESTS"]))
