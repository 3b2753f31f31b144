"""Sends the requests of ``mcp doctor``, over HTTP or in this process, and records each step."""

from __future__ import annotations

import json
import re
import secrets
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from io import BytesIO
from typing import Any, Literal, Protocol
from urllib.parse import unquote_to_bytes, urlsplit

from django.apps import apps
from django.conf import settings
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.db import router, transaction
from django.urls import get_script_prefix, set_script_prefix

from mcp_django import __version__
from mcp_django.auth.outbound import NoRedirect
from mcp_django.conf import is_loopback
from mcp_django.protocol.headers import EVENT_STREAM, FORM, JSON

MAX_BYTES = 1_000_000
PARAMETER = re.compile(r'([A-Za-z_]+)="((?:[^"\\]|\\.)*)"')


class NoResponse(Exception):
    """A request got no response; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """An HTTP request; ``url`` is absolute."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_chunked: bool = False
    """Whether the body is sent with ``Transfer-Encoding: chunked``, without Content-Length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResponse:
    """An HTTP response; header names are lower case, and the body is cut at ``MAX_BYTES``."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """The media type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def location(self) -> str:
        """The target of a redirect; empty if the response is not a redirect."""
        return self.headers.get("location", "") if 300 <= self.status < 400 else ""

    def json(self) -> dict[str, Any] | None:
        """Return the body as a JSON object; ``None`` if it is not one."""
        try:
            body = self.body
            if self.headers.get("content-encoding", "").lower() == "gzip":
                body = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(body, MAX_BYTES)
            document = json.loads(body)
        except (ValueError, zlib.error, EOFError, OSError):
            return None
        return document if isinstance(document, dict) else None

    def challenge(self) -> dict[str, str] | None:
        """Return the parameters of a Bearer challenge (RFC 6750, section 3), or ``None``."""
        header = self.headers.get("www-authenticate", "")
        if not re.search(r"(^|[ ,])bearer\b", header, re.IGNORECASE):
            return None
        return {name.lower(): value for name, value in PARAMETER.findall(header)}


class HttpTransport(Protocol):
    """Sends requests to the site."""

    def send(self, request: ProbeRequest) -> ProbeResponse:
        """Send a request and return the response; redirects are not followed.

        Raises:
            NoResponse: no response arrives.
        """


def get_request(url: str, **headers: str) -> ProbeRequest:
    """Return a GET request; ``_`` in the name of a header becomes ``-``."""
    return ProbeRequest(method="GET", url=url, headers=_headers(headers))


def json_request(url: str, body: Any, **headers: str) -> ProbeRequest:
    """Return a POST request with a JSON body."""
    all_headers = {"Content-Type": JSON, "Accept": JSON, **_headers(headers)}
    return ProbeRequest(method="POST", url=url, headers=all_headers, body=json.dumps(body).encode())


def form_request(url: str, body: str, **headers: str) -> ProbeRequest:
    """Return a POST request with a form that is already URL-encoded."""
    all_headers = {"Content-Type": FORM, "Accept": JSON, **_headers(headers)}
    return ProbeRequest(method="POST", url=url, headers=all_headers, body=body.encode())


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTransport:
    """Sends requests over the network, as hosts do, with a timeout of ``timeout`` seconds each.

    The requests go through the site's proxies, TLS and redirects. Uses Python's ``urllib``, so the
    command needs no HTTP client library.
    """

    timeout: float

    def send(self, request: ProbeRequest) -> ProbeResponse:
        """Send a request and return the response, with any status.

        Raises:
            NoResponse: no response arrives within the timeout.
        """
        parts = urlsplit(request.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NoResponse(f"{request.url!r} is not an HTTP URL")
        agent = {"User-Agent": f"mcp-doctor/{__version__}"}
        # An iterator has no length, so urllib sends it in chunks.
        body = iter([request.body]) if request.is_chunked else request.body
        sent = urllib.request.Request(  # noqa: S310 - the scheme is checked above
            request.url,
            data=body if request.method == "POST" else None,
            headers={**agent, **request.headers},
            method=request.method,
        )
        try:
            # No proxy for this machine. Redirects are not followed: a host would lose the body of
            # its POST.
            direct = [urllib.request.ProxyHandler({})] if is_loopback(parts.hostname) else []
            opener = urllib.request.build_opener(NoRedirect(), *direct)
            with opener.open(sent, timeout=self.timeout) as response:
                return _read_response(response)
        except urllib.error.HTTPError as exc:
            with exc:
                return _read_response(exc)
        except (OSError, HTTPException, ValueError) as exc:
            reason = getattr(exc, "reason", None) or exc
            raise NoResponse(f"{request.url} does not respond: {reason}") from None


def _read_response(response: Any) -> ProbeResponse:
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        previous = headers.get(name.lower())
        headers[name.lower()] = f"{previous}, {value}" if previous else value
    # Reading an open SSE stream would never end.
    is_stream = headers.get("content-type", "").startswith(EVENT_STREAM)
    return ProbeResponse(
        status=response.status,
        headers=headers,
        body=b"" if is_stream else response.read(MAX_BYTES),
    )


PORTS = {"http": "80", "https": "443"}


class InProcessTransport:
    """Sends requests for one origin to the site's handler: its middleware, URLconf and views."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._prefix = (settings.FORCE_SCRIPT_NAME or "").rstrip("/")
        # Rate limits count by IP address: a random one does not use up another client's limit.
        self._address = f"2001:db8::{secrets.token_hex(2)}:{secrets.token_hex(2)}"
        self._handler = BaseHandler()
        self._handler.load_middleware()

    def send(self, request: ProbeRequest) -> ProbeResponse:
        """Send a request and return the site's response.

        Raises:
            NoResponse: the URL does not belong to this site.
        """
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self._origin:
            raise NoResponse(f"{request.url} is not on {self._origin}")
        if self._prefix and not f"{parts.path}/".startswith(f"{self._prefix}/"):
            raise NoResponse(f"{request.url} is outside of FORCE_SCRIPT_NAME {self._prefix}")
        before = get_script_prefix()
        set_script_prefix(f"{self._prefix}/")
        try:
            response = self._handler.get_response(WSGIRequest(self._environ(request)))
            headers = {name.lower(): value for name, value in response.items()}
            body = b"" if response.streaming else getattr(response, "content", b"")[:MAX_BYTES]
            return ProbeResponse(status=response.status_code, headers=headers, body=body)
        finally:
            set_script_prefix(before)

    def _environ(self, request: ProbeRequest) -> dict[str, Any]:
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
def roll_back_writes() -> Iterator[None]:
    """Roll back all writes within the block, on every database that the site writes to.

    This also removes the clients that were registered within it.
    """
    aliases = {router.db_for_write(model) for model in apps.get_models()}
    with ExitStack() as stack:
        for alias in sorted(aliases):
            stack.enter_context(transaction.atomic(using=alias))
            stack.callback(partial(transaction.set_rollback, rollback=True, using=alias))
        yield


def own_origin() -> str:
    """Return the site's origin, derived from ``ALLOWED_HOSTS``."""
    for pattern in settings.ALLOWED_HOSTS:
        host = pattern.removeprefix(".")
        if host and "*" not in host:
            is_local = host == "testserver" or is_loopback(host.strip("[]"))
            return f"http://{host}" if is_local else f"https://{host}"
    return "http://localhost"


Verdict = Literal["ok", "failed", "warned", "skipped"]
MARKS: dict[str, str] = {"ok": "✓", "failed": "✗", "warned": "!", "skipped": "-"}


class StepFailed(Exception):
    """A step of a host failed; the arguments are its name, what was found, and how to fix it."""


@dataclass(frozen=True, slots=True)
class ReportStep:
    """One step: what was found and, for a failure or a warning, how to fix it."""

    name: str
    verdict: Verdict
    found: str
    fix: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the step as a JSON object."""
        fix = {"fix": self.fix} if self.fix else {}
        return {"step": self.name, "verdict": self.verdict, "found": self.found, **fix}


@dataclass(slots=True, kw_only=True)
class HostReport:
    """The steps of one host in order, or those that apply to every host."""

    slug: str
    title: str
    steps: list[ReportStep] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        """Whether no step failed (warnings are allowed)."""
        return all(step.verdict != "failed" for step in self.steps)

    def add_ok(self, name: str, finding: str) -> None:
        """Record a step that passed."""
        self.steps.append(ReportStep(name, "ok", finding))

    def add_failure(self, name: str, finding: str, fix: str) -> None:
        """Record a step that stops the host."""
        self.steps.append(ReportStep(name, "failed", finding, fix))

    def add_warning(self, name: str, finding: str, fix: str) -> None:
        """Record a problem for some clients that does not stop this host."""
        self.steps.append(ReportStep(name, "warned", finding, fix))

    def add_skipped(self, name: str, finding: str) -> None:
        """Record a step that was not tried, and why."""
        self.steps.append(ReportStep(name, "skipped", finding))


@dataclass(slots=True, kw_only=True)
class Probe(HostReport):
    """A report about a site, based on its responses to the requests that are sent to it."""

    transport: HttpTransport

    def send(self, step: str, request: ProbeRequest, fix: str) -> ProbeResponse:
        """Return the response to a request.

        Raises:
            StepFailed: no response arrives.
        """
        try:
            return self.transport.send(request)
        except NoResponse as exc:
            raise StepFailed(step, str(exc), fix) from None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record a step that fails within the block; the failure ends the block."""
        try:
            yield
        except StepFailed as exc:
            self.add_failure(*exc.args)
