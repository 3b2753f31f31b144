"""The tables, and that the migrations make them."""

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command

from mcp_django.models import AccessToken


@pytest.mark.django_db
def test_the_migrations_are_complete(settings):
    # The tests make their tables from the models (--no-migrations).
    settings.MIGRATION_MODULES = {}
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_the_user_gets_no_attributes_of_ours():
    related = [
        field.name
        for field in get_user_model()._meta.related_objects
        if field.related_model is AccessToken
    ]
    assert all(name.endswith("+") for name in related)
