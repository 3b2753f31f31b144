"""What a mount serves beside MCP: a page for browsers, the health check and the approval page."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
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
from django.urls import ResolverMatch, URLPattern, re_path
from django.urls.resolvers import RegexPattern
from django.utils.safestring import mark_safe
from django.utils.text import slugify
from django.utils.translation import get_language, gettext as _
from django.views.decorators.http import require_http_methods

from mcp_django.auth.pages import guarded, hash_source
from mcp_django.auth.permissions import AllowAny, permissions
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.execution.approval_guard import Preview, decide, lines, may_decide, may_see
from mcp_django.protocol.headers import MCP_PROTOCOL_VERSION, Headers
from mcp_django.protocol.revisions import LATEST
from mcp_django.storage import approval_rows
from mcp_django.storage.databases import alias
from mcp_django.transports.exchange import Exchange, Reply, json_reply, refusal

logger = logging.getLogger("mcp_django")

STYLE = Path(__file__).parent.parent / "templates" / "mcp_django" / "endpoint.css"
HEADER = "Authorization"
PLACEHOLDER = "Bearer YOUR_TOKEN"
# Backends whose tokens come from an authorization server that clients find by themselves.
SIGN_IN = {"oauth", "jwt"}


def is_wanted(headers: Headers) -> bool:
    """Whether a GET comes from a browser's address bar and not from a client."""
    return "text/html" in (headers.get("accept") or "") and MCP_PROTOCOL_VERSION not in headers


def offers_sign_in(server: Server) -> bool:
    """Whether a client gets a token by itself, once its user has signed in."""
    return bool({*server.auth} & SIGN_IN)


def render_page(server: Server, exchange: Exchange) -> Reply:
    """What this is and how to connect; says nothing about what is inside."""
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
    closed = not all(isinstance(one, AllowAny) for one in permissions(server.permission))
    # Hosts use it as an identifier: of the heading, which a person knows the server by.
    name = slugify(identity.get("title", "")) or slugify(identity["name"])
    entry: dict[str, Any] = {"url": url}
    needs_token = closed and not offers_sign_in(server)
    if needs_token:
        entry["headers"] = {HEADER: PLACEHOLDER}
    return {
        "language": get_language() or "en",
        "identity": identity,
        "heading": identity.get("title") or identity["name"],
        "slug": name,
        "url": url,
        "needs_token": needs_token,
        "signs_in": closed and not needs_token,
        "revision": LATEST.version,
        "header_option": f' --header "{HEADER}: {PLACEHOLDER}"' if needs_token else "",
        "vscode": json.dumps({"servers": {name: {"type": "http", **entry}}}, indent=2),
        "cursor": json.dumps({"mcpServers": {name: entry}}, indent=2),
        "inspector": json.dumps(
            {"mcpServers": {name: {"type": "http", "protocolEra": "modern", **entry}}}, indent=2
        ),
        "style": mark_safe(_style()),  # noqa: S308 - a file of this package
    }


@cache
def _style() -> str:
    return STYLE.read_text()


@cache
def _policy() -> str:
    """A policy under which nothing runs and only our own style applies, known by its hash."""
    return (
        f"default-src 'none'; style-src {hash_source(_style())}; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


# Health check -------------------------------------------------------------------------------------

# ``GET <mount>/health`` says whether the database answers, for the monitoring of the site. It
# exists if ``MCP_DJANGO["HEALTH"]`` says so. It asks for no credentials and answers only yes or
# no, so it may be called by anyone and as often as they like: the database is asked at most once
# a second, by one thread, and a question that takes too long is answered with no.

# An answer is good for so long, however many ask.
FRESH_SECONDS = 1.0
# A database that has not answered by then counts as one that does not.
PATIENCE_SECONDS = 2.0

VERBS = ("GET", "HEAD")
WELL, ILL = b'{"status":"ok"}', b'{"status":"unavailable"}'


class _SwitchedPattern(URLPattern):
    """A pattern that is there while the setting says so; else the address is the site's own."""

    def resolve(self, path: str) -> ResolverMatch | None:
        """The match, while there is such an endpoint."""
        return super().resolve(path) if get_settings().health else None


def health_patterns(view: Callable[..., Any]) -> list[URLPattern]:
    """The addresses below a mount, and below one that ends in a slash already or is the root."""
    return [
        _SwitchedPattern(RegexPattern(r"^(?:/)health/?$", is_endpoint=True), view, None, "health"),
        _SwitchedPattern(RegexPattern(r"^health/?$", is_endpoint=True), view),
    ]


def check(exchange: Exchange) -> Reply | None:
    """The refusal of a request that asks nothing about health, ``None`` for one that does."""
    if not get_settings().health:
        return refusal(404, "There is no such endpoint here.")
    if exchange.verb not in VERBS:
        allow = (("Allow", ", ".join(VERBS)),)
        return refusal(405, "Ask about health with GET.", headers=allow)
    return None


def reply(exchange: Exchange) -> Reply:
    """200 when the database answers, 503 else; waits for it no longer than two seconds."""
    found = json_reply(200, WELL) if probe.is_well() else json_reply(503, ILL)
    return replace(found, body=b"") if exchange.verb == "HEAD" else found


@dataclass(slots=True)
class Question:
    """One ``SELECT 1``, under way or answered."""

    began: float
    answered: threading.Event
    is_well: bool = False
    ended: float = 0.0

    def ask(self) -> None:
        """Ask the database; runs in a thread of its own."""
        connection = connections[alias()]
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT 1{connection.features.bare_select_suffix}")
                self.is_well = cursor.fetchone() is not None
        except Error as exc:
            logger.warning("The database does not answer: %s.", type(exc).__name__)
        finally:
            connection.close()
            self.ended = time.monotonic()
            self.answered.set()

    def wait(self) -> bool:
        """Whether the answer was yes; no, once the patience with it is over."""
        left = self.began + PATIENCE_SECONDS - time.monotonic()
        return self.answered.wait(max(0.0, left)) and self.is_well


class _Probe:
    """What this process knows of the database's health: one question at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._question: Question | None = None

    def is_well(self) -> bool:
        """Whether the database answers, as of a second ago at most."""
        return self._current().wait()

    def forget(self) -> None:
        """Ask anew the next time."""
        self._question = None

    def _current(self) -> Question:
        with self._lock:
            last = self._question
            if last is not None and not _is_over(last):
                return last
            question = Question(began=time.monotonic(), answered=threading.Event())
            self._question = question
            # A daemon: the end of the process does not wait for a database that hangs.
            threading.Thread(target=question.ask, name="mcp-health", daemon=True).start()
            return question


def _is_over(question: Question) -> bool:
    """Whether the answer is there and has aged."""
    is_answered = question.answered.is_set()
    return is_answered and time.monotonic() - question.ended >= FRESH_SECONDS


probe = _Probe()


# Approval page ------------------------------------------------------------------------------------

CODE = r"(?P<code>[A-Za-z0-9_-]{1,32})"
TEMPLATE = "mcp_django/approval.html"


def approval_patterns(server: Server) -> list[URLPattern]:
    """The addresses below a mount, and below one that ends in a slash already or is the root."""
    view = _ApprovalView(server)
    return [
        re_path(rf"^(?:/)approvals/{CODE}/?$", view, name="approval"),
        re_path(rf"^approvals/{CODE}/?$", view),
    ]


class _ApprovalView:
    """The page of one server's calls that wait; with a POST a person approves or refuses one.

    It uses the site's own session, below the mount of the server, so it works without the admin and
    without an authorization server. Its address is not a secret: a user who may not see it gets the
    answer for a page that does not exist.
    """

    csrf_exempt = True  # the view behind it checks by itself, with or without middleware
    login_required = False  # likewise

    def __init__(self, server: Server) -> None:
        self._server = server
        answer = require_http_methods(["GET", "HEAD", "POST"])(self._answer)
        self._view = guarded(login_required(answer))
        # Django's resolver names a view by these.
        self.__name__ = self.__qualname__ = "mcp_approval"

    def __call__(self, request: HttpRequest, code: str, **kwargs: Any) -> HttpResponseBase:
        """Answer one request."""
        return self._view(request, code)

    def _answer(self, request: HttpRequest, code: str) -> HttpResponse:
        row = approval_rows.by_code(code, self._server.name)
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
                "This was decided before, or it is too late; what you chose changed nothing."
            )
        context = self._context(row, request, problem)
        return render(request, TEMPLATE, context, status=409 if problem else 200)

    def _context(self, row: Any, request: HttpRequest, problem: str) -> dict[str, Any]:
        self._server.refresh()
        tool = self._server.offered.tools.get(row.component)
        identity = self._server.identity()
        is_open = approval_rows.is_open(row)
        return {
            "row": row,
            "tool": tool,
            "title": (tool.title if tool is not None else "") or row.component,
            "server_title": identity.get("title") or identity["name"],
            "arguments": lines(row.arguments),
            "preview": Preview.of(row.preview),
            "is_open": is_open,
            "is_expired": row.state == approval_rows.PENDING and not is_open,
            "decides": is_open and may_decide(row, request.user),
            "problem": problem,
        }
