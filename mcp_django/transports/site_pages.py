"""Pages of a mount besides MCP: the page for browsers, the health check and the approval page."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db import Error, connections
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, ResolverMatch, URLPattern, re_path, reverse
from django.urls.resolvers import RegexPattern
from django.utils.safestring import mark_safe
from django.utils.text import slugify
from django.utils.translation import get_language, gettext as _
from django.views.decorators.http import require_http_methods

from mcp_django.auth.authentication import why_not_cached
from mcp_django.auth.pages import csp_hash_source, protect_page
from mcp_django.auth.permissions import AllowAny, parse_permissions
from mcp_django.components.catalog import Server
from mcp_django.conf import get_settings
from mcp_django.execution.approval_guard import (
    DryRunPreview,
    decide,
    may_decide,
    may_see,
    text_items,
)
from mcp_django.protocol.headers import MCP_PROTOCOL_VERSION, Headers
from mcp_django.storage import approval_rows
from mcp_django.storage.cache import cache_counters, confirm_seconds
from mcp_django.storage.databases import write_alias
from mcp_django.transports.exchange import Exchange, json_reply, jsonrpc_error_reply
from mcp_django.transports.outcome import Reply

logger = logging.getLogger("mcp_django")

STYLE = Path(__file__).parent.parent / "templates" / "mcp_django" / "endpoint.css"
HEADER = "Authorization"
PLACEHOLDER = "Bearer YOUR_TOKEN"
# Backends whose tokens come from an authorization server that clients discover.
SIGN_IN = {"oauth", "jwt"}


def is_browser_request(headers: Headers) -> bool:
    """Return whether a GET is from a web browser and not from an MCP client."""
    return "text/html" in (headers.get("accept") or "") and MCP_PROTOCOL_VERSION not in headers


def offers_sign_in(server: Server) -> bool:
    """Return whether clients obtain a token themselves, after the user has signed in."""
    return bool({*server.auth} & SIGN_IN)


def render_page(server: Server, exchange: Exchange) -> Reply:
    """Render the page that explains how to connect; it does not list any components."""
    request = exchange.request()
    html = render_to_string(
        "mcp_django/endpoint.html", _context(server, request.build_absolute_uri(request.path))
    )
    return Reply(
        status=200,
        headers=(
            ("Content-Type", "text/html; charset=utf-8"),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", _policy()),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "same-origin"),
        ),
        body=html.encode(),
    )


def _context(server: Server, url: str) -> dict[str, Any]:
    identity = server.identity()
    closed = not all(
        isinstance(permission, AllowAny) for permission in parse_permissions(server.permission)
    )
    # Hosts use the name as an identifier; it is derived from the title that users see.
    name = slugify(identity.get("title", "")) or slugify(identity["name"])
    server_config: dict[str, Any] = {"url": url}
    needs_token = closed and not offers_sign_in(server)
    signs_in = closed and not needs_token
    if needs_token:
        server_config["headers"] = {HEADER: PLACEHOLDER}
    connections_url = ""
    if signs_in:
        # Where users see and revoke the access that they granted.
        with suppress(NoReverseMatch):
            connections_url = reverse("mcp_oauth:connections")
    return {
        "language": get_language() or "en",
        "identity": identity,
        "heading": identity.get("title") or identity["name"],
        "slug": name,
        "url": url,
        "needs_token": needs_token,
        "signs_in": signs_in,
        "revisions": ", ".join(server.protocol_versions),
        "connections": connections_url,
        "header_option": f' --header "{HEADER}: {PLACEHOLDER}"' if needs_token else "",
        "vscode": json.dumps({"servers": {name: {"type": "http", **server_config}}}, indent=2),
        "cursor": json.dumps({"mcpServers": {name: server_config}}, indent=2),
        "inspector": json.dumps(
            {"mcpServers": {name: {"type": "http", "protocolEra": "modern", **server_config}}},
            indent=2,
        ),
        "style": mark_safe(_style()),  # noqa: S308 - a file of this package
    }


@cache
def _style() -> str:
    return STYLE.read_text()


@cache
def _policy() -> str:
    """Return a Content-Security-Policy that allows only the page's own style, by its hash."""
    return (
        f"default-src 'none'; style-src {csp_hash_source(_style())}; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


# Health check -------------------------------------------------------------------------------------

# ``GET <mount>/health`` reports whether the database answers, for monitoring. The endpoint exists
# only if ``MCP_DJANGO["HEALTH"]`` is true. It needs no credentials and reports only "ok" or
# "unavailable", and counters of what the process caches. Many requests do no harm: the database is
# queried at most once a second, by one thread, and a query that takes too long counts as
# "unavailable".

# How long a result is reused for all requests.
FRESH_SECONDS = 1.0
# A database that has not answered within this time counts as unavailable.
QUERY_TIMEOUT_SECONDS = 2.0

VERBS = ("GET", "HEAD")


class _SwitchedPattern(URLPattern):
    """A pattern that matches only while the setting enables it; else the site may use the URL."""

    def resolve(self, path: str) -> ResolverMatch | None:
        """Return the match, or ``None`` if the health check is disabled."""
        return super().resolve(path) if get_settings().health else None


def health_patterns(view: Callable[..., Any]) -> list[URLPattern]:
    """Return the URL patterns for a mount without and with a trailing slash (or at the root)."""
    return [
        _SwitchedPattern(RegexPattern(r"^(?:/)health/?$", is_endpoint=True), view, None, "health"),
        _SwitchedPattern(RegexPattern(r"^health/?$", is_endpoint=True), view),
    ]


def check_health_request(exchange: Exchange) -> Reply | None:
    """Return an error reply if the endpoint is disabled or the method is wrong; else ``None``."""
    if not get_settings().health:
        return jsonrpc_error_reply(
            404, "The health check is not enabled; see MCP_DJANGO['HEALTH']."
        )
    if exchange.verb not in VERBS:
        allow = (("Allow", ", ".join(VERBS)),)
        return jsonrpc_error_reply(405, "Use GET or HEAD for the health check.", headers=allow)
    return None


def health_reply(server: Server, exchange: Exchange) -> Reply:
    """Return 200 if the database answers within two seconds, else 503."""
    is_well = health_check.is_well()
    report: dict[str, Any] = {"status": "ok" if is_well else "unavailable"}
    if confirm_seconds():
        is_cached = not why_not_cached(tuple(server.auth), server.upstream)
        report["callers"] = "cached" if is_cached else "looked up"
        report["cache"] = cache_counters()
    body = json.dumps(report, separators=(",", ":")).encode()
    reply = json_reply(200 if is_well else 503, body)
    return replace(reply, body=b"") if exchange.verb == "HEAD" else reply


@dataclass(slots=True)
class DatabaseProbe:
    """One ``SELECT 1``, running or finished."""

    began: float
    answered: threading.Event
    is_well: bool = False
    ended: float = 0.0

    def run_query(self) -> None:
        """Run the query; called in its own thread."""
        connection = connections[write_alias()]
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT 1{connection.features.bare_select_suffix}")
                self.is_well = cursor.fetchone() is not None
        except Error as exc:
            logger.warning("Health check: the database does not answer (%s).", type(exc).__name__)
        finally:
            connection.close()
            self.ended = time.monotonic()
            self.answered.set()

    def wait(self) -> bool:
        """Wait for the query; return whether it succeeded within ``QUERY_TIMEOUT_SECONDS``."""
        seconds = self.began + QUERY_TIMEOUT_SECONDS - time.monotonic()
        return self.answered.wait(max(0.0, seconds)) and self.is_well


class _HealthCheck:
    """Checks the database for this process, with one query at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._probe: DatabaseProbe | None = None

    def is_well(self) -> bool:
        """Return whether the database answers; the result is at most one second old."""
        with self._lock:
            probe = self._probe
            if probe is None or (
                probe.answered.is_set() and time.monotonic() - probe.ended >= FRESH_SECONDS
            ):
                probe = DatabaseProbe(began=time.monotonic(), answered=threading.Event())
                self._probe = probe
                # A daemon thread: the process does not wait for a database that hangs.
                threading.Thread(target=probe.run_query, name="mcp-health", daemon=True).start()
        return probe.wait()

    def forget(self) -> None:
        """Discard the result, so the next check runs a query."""
        self._probe = None


health_check = _HealthCheck()


# Approval page ------------------------------------------------------------------------------------

CODE = r"(?P<code>[A-Za-z0-9_-]{1,32})"
TEMPLATE = "mcp_django/approval.html"


def approval_patterns(server: Server) -> list[URLPattern]:
    """Return the URL patterns for a mount without and with a trailing slash (or at the root)."""
    view = _ApprovalView(server)
    return [
        re_path(rf"^(?:/)approvals/{CODE}/?$", view, name="approval"),
        re_path(rf"^approvals/{CODE}/?$", view),
    ]


class _ApprovalView:
    """The page for one pending call of a server; with a POST a user approves or rejects the call.

    It uses the site's own login session, below the mount of the server, so it works without the
    admin and without an authorization server. Its URL is not a secret: a user who may not see the
    page gets a 404.
    """

    csrf_exempt = True  # the wrapped view checks CSRF, with or without middleware
    login_required = False  # the wrapped view requires a login

    def __init__(self, server: Server) -> None:
        self._server = server
        answer = require_http_methods(["GET", "HEAD", "POST"])(self._answer)
        self._view = protect_page(login_required(answer))
        # Django's resolver uses these as the view's name.
        self.__name__ = self.__qualname__ = "mcp_approval"

    def __call__(self, request: HttpRequest, code: str, **kwargs: Any) -> HttpResponseBase:
        """Process one request and return the response."""
        return self._view(request, code)

    def _answer(self, request: HttpRequest, code: str) -> HttpResponse:
        row = approval_rows.find_by_code(code, self._server.name)
        if row is None or not may_see(row, request.user):
            raise Http404
        problem = ""
        if request.method == "POST":
            verdict = request.POST.get("decision")
            if verdict not in ("grant", "refuse") or not may_decide(row, request.user):
                raise Http404
            reason = request.POST.get("reason", "").strip()
            if decide(row, request.user, is_granted=verdict == "grant", reason=reason):
                return redirect(request.path)
            problem = _(
                "This call was already approved or rejected, or it has expired. Nothing was "
                "changed."
            )
        context = self._context(row, request, problem)
        return render(request, TEMPLATE, context, status=409 if problem else 200)

    def _context(self, row: Any, request: HttpRequest, problem: str) -> dict[str, Any]:
        self._server.refresh()
        tool = self._server.catalog.tools.get(row.component)
        identity = self._server.identity()
        is_open = approval_rows.is_pending(row)
        return {
            "row": row,
            "tool": tool,
            "title": (tool.title if tool is not None else "") or row.component,
            "server_title": identity.get("title") or identity["name"],
            "arguments": text_items(row.arguments),
            "preview": DryRunPreview.from_stored(row.preview),
            "is_open": is_open,
            "is_expired": row.state == approval_rows.PENDING and not is_open,
            "decides": is_open and may_decide(row, request.user),
            "problem": problem,
        }
