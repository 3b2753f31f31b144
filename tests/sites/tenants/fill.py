"""Make the tables of a site, and the rows of its tenants: `python -m tests.sites.tenants.fill`."""

from __future__ import annotations

import os
from typing import Any

import django
from django.core.management import call_command
from django.db import connection

TENANTS = ("alpha", "beta")
# The secrets of the tokens of a user of each tenant.
SECRETS = {"alpha": "a" * 43, "beta": "b" * 43}
USERS = {"alpha": "alice", "beta": "bob"}


def rows(tenant: str) -> list[dict[str, object]]:
    """Return the rows of a tenant, as arguments of the model."""
    return [{"tenant": tenant, "number": n, "name": f"{tenant}-{n}"} for n in (1, 2, 3)]


def schemas() -> None:
    from django_tenants.utils import schema_context

    from tests.sites.tenants.models import Item
    from tests.sites.tenants.organizations.models import Domain, Organization

    call_command("migrate_schemas", schema_name="public", run_syncdb=True, verbosity=0)
    for tenant in ("public", *TENANTS):
        organization = Organization(schema_name=tenant)
        organization.save(verbosity=0)
        Domain.objects.create(domain=f"{tenant}.tenants.test", tenant=organization)
    for tenant in TENANTS:
        call_command("migrate_schemas", schema_name=tenant, run_syncdb=True, verbosity=0)
        with schema_context(tenant):
            Item.objects.bulk_create(Item(**values) for values in rows(tenant))


def shared_users() -> None:
    """Create users that all tenants share, each of whom has a token of one tenant."""
    from django.contrib.auth.models import User
    from django_tenants.utils import schema_context

    schemas()
    for tenant, name in USERS.items():
        user = User.objects.create_superuser(name)
        with schema_context(tenant):
            issue(user, tenant)


def users() -> None:
    """Create users in each schema, in which the first key belongs to another user."""
    from django.contrib.auth.models import User
    from django_tenants.utils import schema_context

    schemas()
    for schema, name in (("public", "root"), *USERS.items()):
        with schema_context(schema):
            user = User.objects.create_superuser(name, pk=1)
            if schema in SECRETS:
                issue(user, schema)
                # No user has this key in `public`.
                User.objects.create_user(f"friend of {name}", pk=7)


def issue(user: Any, tenant: str) -> None:
    """Create a token; called in the context of the tenant."""
    from mcp_django.models import AccessToken

    token, _ = AccessToken.objects.issue(user, name="test", scopes=["mcp"], secret=SECRETS[tenant])
    assert token.tenant == tenant


def unused() -> None:
    from tests.sites.tenants.models import Item

    call_command("migrate_schemas", schema_name="public", run_syncdb=True, verbosity=0)
    Item.objects.bulk_create(Item(**values) for values in rows("alpha"))


def policies() -> None:
    from tests.sites.tenants.models import Item

    call_command("migrate", run_syncdb=True, verbosity=0)
    Item.objects.bulk_create(Item(**values) for tenant in TENANTS for values in rows(tenant))
    role = connection.ops.quote_name(os.environ["MCP_TEST_ROLE"])
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            ALTER TABLE tenants_item ENABLE ROW LEVEL SECURITY;
            ALTER TABLE tenants_item FORCE ROW LEVEL SECURITY;
            CREATE POLICY own ON tenants_item
                USING (tenant = current_setting('app.tenant', true));
            GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};
            GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role};
            """
        )


def files() -> None:
    from tests.sites.tenants.models import Item

    for name in ("default", *TENANTS):
        call_command("migrate", database=name, run_syncdb=True, verbosity=0)
    for tenant in TENANTS:
        Item.objects.using(tenant).bulk_create(Item(**values) for values in rows(tenant))


WAYS = {
    "schemas": shared_users,
    "users": users,
    "unused": unused,
    "rows": policies,
    "files": files,
}

if __name__ == "__main__":
    django.setup()
    WAYS[os.environ["MCP_TEST_SITE"]]()
