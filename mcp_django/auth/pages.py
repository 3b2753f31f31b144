"""Pages on which a user decides something: protection, interaction ids, and sign-in.

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


# Interaction ids ----------------------------------------------------------------------------------

# How a page finds out that its visitor is the caller who was sent there. An interaction's id
# travels in a URL that others may get hold of. It does not name its user, and can only be
# verified for the one user it belongs to (ASK-16, ASK-17, ASK-19).


def new_interaction(principal: Principal) -> str:
    """An id of 128 random bits and 66 characters, safe in a URL, that belongs to one principal."""
    return _signer(principal).sign(secrets.token_urlsafe(16))


def belongs_to(interaction_id: str | None, user: Any) -> bool:
    """Whether the interaction was begun by this user; nobody's belongs to nobody.

    A page that ``ctx.elicit_url`` sends people to asks this of ``request.user`` before it shows or
    takes anything.
    """
    if not interaction_id or not user.is_authenticated:
        return False
    try:
        _signer(principal_for(user)).unsign(interaction_id)
    except (BadSignature, UnicodeEncodeError):  # half a surrogate pair has no bytes to sign
        return False
    return True


def _signer(principal: Principal) -> Signer:
    return Signer(sep=".", salt=f"mcp_django.interaction:{principal.user_key}")


# The sign-in page ---------------------------------------------------------------------------------

HINT = 'Set LOGIN_URL to your sign-in page; with the admin, LOGIN_URL = "admin:login".'


def has_sign_in_page() -> bool:
    """Whether ``LOGIN_URL`` leads to a view of this site, or to another site."""
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
