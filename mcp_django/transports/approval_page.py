"""The page on which a person looks at a call that waits, and says yes or no to it.

It is in the site's own session, below the mount of the server, so it is there without the admin and
without an authorization server. Its address is no secret: who may not see it is told that there is
nothing.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import URLPattern, re_path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from mcp_django.auth.pages import guarded
from mcp_django.core.catalog import Server
from mcp_django.runtime.approving_display import Preview, lines
from mcp_django.runtime.approving_page import decide, may_decide, may_see
from mcp_django.store import approvals

CODE = r"(?P<code>[A-Za-z0-9_-]{1,32})"
TEMPLATE = "mcp_django/approval.html"


def patterns(server: Server) -> list[URLPattern]:
    """The addresses below a mount, and below one that ends in a slash already or is the root."""
    view = ApprovalView(server)
    return [
        re_path(rf"^(?:/)approvals/{CODE}/?$", view, name="approval"),
        re_path(rf"^approvals/{CODE}/?$", view),
    ]


class ApprovalView:
    """The page of one server's calls; a POST decides."""

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
        row = approvals.by_code(code, self._server.name)
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
        is_open = approvals.is_open(row)
        return {
            "row": row,
            "tool": tool,
            "title": (tool.title if tool is not None else "") or row.component,
            "server_title": identity.get("title") or identity["name"],
            "arguments": lines(row.arguments),
            "preview": Preview.of(row.preview),
            "is_open": is_open,
            "is_expired": row.state == approvals.PENDING and not is_open,
            "decides": is_open and may_decide(row, request.user),
            "problem": problem,
        }
