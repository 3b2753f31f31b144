"""The next test does not miss what `tests.kit.django_shortcuts` skips."""

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import TransactionTestCase

from tests.kit import django_shortcuts


@pytest.mark.django_db(transaction=True)
def test_what_the_first_test_of_a_process_deletes_is_there_in_the_next(monkeypatch):
    monkeypatch.setattr(django_shortcuts, "_made", {})
    case = TransactionTestCase("__init__")
    case._fixture_setup()
    deleted = Permission.objects.get(codename="change_user")
    deleted.delete()
    case._fixture_teardown()
    assert Permission.objects.filter(codename="change_user").exists()
    assert connection.get_autocommit()
