"""Pages on which users make decisions: response headers, interaction ids, and the sign-in page.

Other sites cannot frame or forge these pages, and they are not cached, whatever middleware the
site has.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.staticfiles import finders
from django.core.signing import BadSignature, Signer
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.templatetags.static import static
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.debug import sensitive_post_parameters

from mcp_django.auth.principal import Principal, principal_for
from mcp_django.tenants import by_tenant

View = Callable[..., HttpResponseBase]

SHEETS = ("mcp_django/page.css", "mcp_django/approval.css", "mcp_django/oauth/pages.css")
"""The style sheets of these pages."""


def protect_page(view: View) -> View:
    """Return a view with the headers of a consent page on each response and a CSRF check on POST.

    The returned view does the check itself, so it also works without Django's CSRF middleware. It
    is exempt from that middleware, so that a rejection has the headers as well.
    """
    protected = csrf_protect(view)

    @sensitive_post_parameters("request")
    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = protected(request, *args, **kwargs)
        for name, value in page_headers().items():
            response[name] = value
        return response

    return csrf_exempt(login_not_required(inner))


def page_headers() -> dict[str, str]:
    """Return the headers of every response.

    There is no ``form-action``: browsers also apply it to the redirect after the form, and would
    prevent users from returning to a program on a loopback port or an app scheme. The opener stays
    reachable for assistants that open the page in a popup. The referrer is sent only within the
    site, where Django's CSRF check needs it, and reveals nothing to a client's page.
    """
    # Storages do not look up a directory in their manifest, so this works without one.
    parts = urlsplit(static("mcp_django/"))
    # Empty if the static files are on this host.
    static_origin = f" {parts.scheme or 'https'}://{parts.netloc}" if parts.netloc else ""
    texts = filter(None, map(inline_style, SHEETS))
    inline_sources = "".join(f" {csp_hash_source(text)}" for text in texts)
    return {
        "X-Frame-Options": "DENY",
        "Content-Security-Policy": (
            f"default-src 'none'; style-src 'self'{static_origin}{inline_sources}; "
            "img-src 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
        "Cache-Control": "no-store",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "unsafe-none",
        "X-Content-Type-Options": "nosniff",
        "X-Robots-Tag": "noindex",
    }


def inline_style(path: str) -> str:
    """Return the text of a style sheet if pages inline it (with ``DEBUG``), else an empty string.

    A site's own file of the same name takes precedence, as with ``collectstatic``.
    """
    sheet = finders.find(path) if settings.DEBUG and path in SHEETS else None
    return Path(sheet).read_text() if sheet else ""


def csp_hash_source(text: str) -> str:
    """Return the Content-Security-Policy source of an inline style or script (CSP3)."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


# A page uses the id of an interaction to verify that its visitor is the caller who was sent there.
# The id is part of a URL that other people may obtain. It does not name its user, and can only be
# verified for the one user it belongs to.


def new_interaction(principal: Principal) -> str:
    """Return a URL-safe id of 128 random bits and 66 characters that belongs to one principal."""
    return _signer(principal).sign(secrets.token_urlsafe(16))


def belongs_to(interaction_id: str | None, user: Any) -> bool:
    """Return whether this user began the interaction; always false for an anonymous user.

    A page that ``ctx.elicit_url`` sends users to checks this for ``request.user`` before it shows
    or accepts anything.
    """
    if not interaction_id or not user.is_authenticated:
        return False
    try:
        _signer(principal_for(user)).unsign(interaction_id)
    except (BadSignature, UnicodeEncodeError):  # a lone surrogate cannot be encoded
        return False
    return True


def _signer(principal: Principal) -> Signer:
    return Signer(sep=".", salt=by_tenant(f"mcp_django.interaction:{principal.user_key}"))


SIGN_IN_HINT = 'Set LOGIN_URL to your sign-in page; with the admin, LOGIN_URL = "admin:login".'


def has_sign_in_page() -> bool:
    """Return whether ``LOGIN_URL`` leads to a view of this site, or to another site."""
    if not settings.LOGIN_URL:
        return False
    try:
        parts = urlsplit(resolve_url(settings.LOGIN_URL))
    except NoReverseMatch:
        return False
    if parts.netloc:
        return True
    try:
        resolve(parts.path.removeprefix(get_script_prefix().rstrip("/")))
    except Resolver404:
        return False
    return True
