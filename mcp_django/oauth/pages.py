"""What every page of the authorization server has in common: it is nobody else's to frame, cache or
forge, whatever middleware the site has.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from mcp_django.auth.pages import guarded, headers

__all__ = ["guarded", "headers", "show", "show_error"]


def show(
    request: HttpRequest, template: str, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    """A page made of a template of ``mcp_django/oauth/``."""
    return render(request, f"mcp_django/oauth/{template}", context, status=status)


def show_error(
    request: HttpRequest,
    *,
    title: str,
    message: str,
    detail: str = "",
    hint: str = "",
    status: int = 400,
) -> HttpResponse:
    """The page for what cannot go on and may be told to nobody but the user."""
    context = {"title": title, "message": message, "detail": detail, "hint": hint}
    return show(request, "error.html", context, status=status)
