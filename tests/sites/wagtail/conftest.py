"""The root of the tree of pages, and users."""

import pytest
from django.contrib.auth import get_user_model


@pytest.fixture
def home(db):
    """Return the home page."""
    from wagtail.models import Locale, Page, Site

    Locale.objects.get_or_create(language_code="en")
    root = Page.add_root(instance=Page(title="Root", slug="root"))
    home = root.add_child(instance=Page(title="Home", slug="home"))
    Site.objects.create(hostname="localhost", root_page=home, is_default_site=True)
    return home


@pytest.fixture
def root(db):
    """Return a superuser."""
    return get_user_model().objects.create_superuser("root", "root@example.org", "x")
