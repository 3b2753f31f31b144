"""A site without any address."""

from __future__ import annotations

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
