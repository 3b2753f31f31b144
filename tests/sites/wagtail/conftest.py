"""The root of the tree of pages, and users."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model


@pytest.fixture
def home(db: None) -> Any:
    """Return the home page."""
    from wagtail.models import Locale, Page, Site

    Locale.objects.get_or_create(language_code="en")
    root = Page.add_root(instance=Page(title="Root", slug="root"))
    home = root.add_child(instance=Page(title="Home", slug="home"))
    Site.objects.create(hostname="localhost", root_page=home, is_default_site=True)
    return home


@pytest.fixture
def root(db: None) -> Any:
    """Return a superuser."""
    return get_user_model().objects.create_superuser("root", "root@example.org", "x")
