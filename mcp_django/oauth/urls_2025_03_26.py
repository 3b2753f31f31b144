"""``/authorize``, ``/token``, ``/register`` at the root, where clients of 2025-03-26 guess them."""

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
