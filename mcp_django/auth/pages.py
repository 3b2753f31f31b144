"""What the pages of this package have in common on which a user decides something.

They are nobody else's to frame, cache or forge, whatever middleware the site has.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.staticfiles import finders
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.templatetags.static import static
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.debug import sensitive_post_parameters

View = Callable[..., HttpResponseBase]

SHEETS = ("mcp_django/page.css", "mcp_django/approval.css", "mcp_django/oauth/pages.css")
"""The style sheets of these pages."""


def guarded(view: View) -> View:
    """A view whose answers carry the headers of a consent page and whose POST needs a CSRF token.

    The check is the view's own, so a site without Django's CSRF middleware has it too; that
    middleware is told to leave the view alone, so that a refusal has the headers as well.
    """
    protected = csrf_protect(view)

    @sensitive_post_parameters("request")
    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = protected(request, *args, **kwargs)
        for name, value in headers().items():
            response[name] = value
        return response

    return csrf_exempt(login_not_required(inner))


def headers() -> dict[str, str]:
    """The headers of every answer.

    There is no ``form-action``: browsers apply it to the redirect that answers the form too, and
    would keep a user from getting back to a program on a loopback port or an app scheme. The opener
    stays reachable for assistants that open the page in a popup. The referrer stays within the
    site, where Django's CSRF check needs it, and tells a client's page nothing.
    """
    return {
        "X-Frame-Options": "DENY",
        "Content-Security-Policy": (
            f"default-src 'none'; style-src 'self'{_static_origin()}{_inline_sources()}; "
            "img-src 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
        "Cache-Control": "no-store",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "unsafe-none",
        "X-Content-Type-Options": "nosniff",
        "X-Robots-Tag": "noindex",
    }


def inline_style(path: str) -> str:
    """The text of one of the ``SHEETS`` under ``DEBUG``, where a page holds it; else empty.

    A site's own file of the same name counts, as for ``collectstatic``.
    """
    found = finders.find(path) if settings.DEBUG and path in SHEETS else None
    return Path(found).read_text() if found else ""


def hash_source(text: str) -> str:
    """What a Content-Security-Policy calls a style or script that stands in a page (CSP3)."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _inline_sources() -> str:
    """The styles that a page may hold, as more sources."""
    texts = filter(None, map(inline_style, SHEETS))
    return "".join(f" {hash_source(text)}" for text in texts)


def _static_origin() -> str:
    """The origin of static files as one more source, where they are on another host."""
    # A directory has no entry in a manifest, so none has to exist to answer with a redirect.
    parts = urlsplit(static("mcp_django/"))
    return f" {parts.scheme or 'https'}://{parts.netloc}" if parts.netloc else ""
