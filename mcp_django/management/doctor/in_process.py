"""The site in this process: its middleware, URLs and views, without a socket or a server.

Whatever a request writes is taken back, and no client that was registered stays.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from django.apps import apps
from django.conf import settings
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.db import router, transaction
from django.http.response import HttpResponseBase
from django.urls import get_script_prefix, set_script_prefix

from mcp_django.management.doctor.messages import MAX_BYTES, Answer, DoorError, Request

PORTS = {"http": "80", "https": "443"}


class ProcessDoor:
    """Hands requests for one origin to the site's own handler."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._prefix = (settings.FORCE_SCRIPT_NAME or "").rstrip("/")
        # Limits count by address, and nobody else's are to be used up.
        self._address = f"2001:db8::{secrets.token_hex(2)}:{secrets.token_hex(2)}"
        self._handler = BaseHandler()
        self._handler.load_middleware()

    def send(self, request: Request) -> Answer:
        """The answer of the site.

        Raises:
            DoorError: the address is not this site's, so nothing in this process answers for it.
        """
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self._origin:
            raise DoorError(f"{request.url} is not on {self._origin}")
        if self._prefix and not f"{parts.path}/".startswith(f"{self._prefix}/"):
            raise DoorError(f"{request.url} is outside of FORCE_SCRIPT_NAME {self._prefix}")
        before = get_script_prefix()
        set_script_prefix(f"{self._prefix}/")
        try:
            response = self._handler.get_response(WSGIRequest(self._environ(request)))
            return _answer(response)
        finally:
            set_script_prefix(before)

    def _environ(self, request: Request) -> dict[str, Any]:
        parts = urlsplit(request.url)
        environ = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": self._prefix,
            "PATH_INFO": unquote_to_bytes(parts.path.removeprefix(self._prefix)).decode("latin-1"),
            "QUERY_STRING": parts.query,
            "SERVER_NAME": parts.hostname or "",
            "SERVER_PORT": str(parts.port or PORTS[parts.scheme]),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": self._address,
            "HTTP_HOST": parts.netloc,
            "CONTENT_LENGTH": str(len(request.body)),
            "wsgi.url_scheme": parts.scheme,
            "wsgi.input": BytesIO(request.body),
        }
        for name, value in request.headers.items():
            key = name.upper().replace("-", "_")
            environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
        return environ


@contextmanager
def taken_back() -> Iterator[None]:
    """Whatever is written within is rolled back, on every database that the site writes to."""
    aliases = {router.db_for_write(model) for model in apps.get_models()}
    with ExitStack() as stack:
        for alias in sorted(aliases):
            stack.enter_context(transaction.atomic(using=alias))
            stack.callback(partial(transaction.set_rollback, rollback=True, using=alias))
        yield


def own_origin() -> str:
    """Where the site is, as far as its settings tell: of ``BASE_URL``, else a host it allows."""
    for pattern in settings.ALLOWED_HOSTS:
        host = pattern.removeprefix(".")
        if host and "*" not in host:
            is_local = host in ("localhost", "127.0.0.1", "[::1]", "testserver")
            return f"http://{host}" if is_local else f"https://{host}"
    return "http://localhost"


def _answer(response: HttpResponseBase) -> Answer:
    headers = {name.lower(): value for name, value in response.items()}
    body = b"" if response.streaming else getattr(response, "content", b"")[:MAX_BYTES]
    return Answer(status=response.status_code, headers=headers, body=body)
