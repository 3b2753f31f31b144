"""``/authorize``, ``/token`` and ``/register``, the default URLs of protocol 2025-03-26."""

from __future__ import annotations

from django.urls import re_path

from mcp_django.oauth.authorize import AuthorizeView
from mcp_django.oauth.registration import register
from mcp_django.oauth.token import TokenView

urlpatterns = [
    re_path(r"^authorize/?$", AuthorizeView.as_view()),
    re_path(r"^token/?$", TokenView.as_view()),
    re_path(r"^register/?$", register),
]
