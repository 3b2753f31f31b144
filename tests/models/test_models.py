"""The tables, and the migrations that create them."""

from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.models import AccessToken, AuthEvent, Task
from mcp_django.tenants import as_tenant
from tests.kit.servers import person


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


def add_rows(user, count):
    later = timezone.now() + timedelta(days=1)
    of_task = {"server": "shop", "tool": "sell", "expires_at": later, "ttl_ms": 1, "poll_ms": 1}
    Task.objects.bulk_create(Task(user=user, **of_task) for _ in range(count))
    AuthEvent.objects.bulk_create(AuthEvent(kind="issue", user=user) for _ in range(count))


@pytest.mark.django_db
def test_a_deleted_user_costs_one_statement_for_all_rows_of_a_log():
    user = person()
    add_rows(user, 300)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        user.delete()
    statements = [query["sql"] for query in queries.captured_queries]
    of_events = [sql for sql in statements if AuthEvent._meta.db_table in sql]
    of_tasks = [sql for sql in statements if Task._meta.db_table in sql]
    assert [sql.split()[0] for sql in (*of_events, *of_tasks)] == ["UPDATE", "DELETE"]
    assert not Task.objects.exists()
    assert AuthEvent.objects.filter(user=None).count() == 300


@pytest.mark.django_db
def test_a_deleted_user_of_a_tenant_takes_the_rows_of_that_tenant_along(settings):
    """The same key belongs to another user in another tenant."""
    settings.MCP_DJANGO = {"THREAD_CONTEXT": "tests.sites.tenants.middleware.TenantContext"}
    user = person()
    for tenant in ("alpha", "beta"):
        with as_tenant(tenant):
            add_rows(user, 2)
    settings.TENANT_APPS = ["django.contrib.auth"]
    with as_tenant("alpha"):
        # The database of this test has constraints, as on a site with shared users.
        with connection.constraint_checks_disabled():
            user.delete()
        assert [row.tenant for row in Task.objects.all()] == ["beta", "beta"]
        left = AuthEvent.objects.exclude(user_id=None)
        assert [row.tenant for row in left] == ["beta", "beta"]
        Task.objects.all().delete()
        left.delete()
