"""Whether the site has a page where its users sign in."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve

HINT = 'Set LOGIN_URL to your sign-in page; with the admin, LOGIN_URL = "admin:login".'


def has_sign_in_page() -> bool:
    """Whether ``LOGIN_URL`` leads to a view of this site, or to another site."""
    if not django_settings.LOGIN_URL:
        return False
    try:
        parts = urlsplit(resolve_url(django_settings.LOGIN_URL))
    except NoReverseMatch:
        return False
    if parts.netloc:
        return True
    try:
        resolve(parts.path.removeprefix(get_script_prefix().rstrip("/")))
    except Resolver404:
        return False
    return True
