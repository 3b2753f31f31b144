"""Make the tables of a site, and the rows of its tenants: `python -m tests.sites.tenants.fill`."""

from __future__ import annotations

import os

import django
from django.core.management import call_command
from django.db import connection

TENANTS = ("alpha", "beta")
# Of the token of a user of alpha.
SECRET = "a" * 43


def rows(tenant: str) -> list[dict[str, object]]:
    """The rows of a tenant, as arguments of the model."""
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


def users() -> None:
    """Each schema has a user with the first key, and `public` a token of alpha's."""
    from django.contrib.auth.models import User
    from django_tenants.utils import schema_context

    from mcp_django.models import AccessToken

    schemas()
    for schema, name in (("public", "root"), ("beta", "bob"), ("alpha", "alice")):
        with schema_context(schema):
            user = User.objects.create_user(name, pk=1)
            if name == "alice":
                AccessToken.objects.issue(user, name="test", scopes=["mcp"], secret=SECRET)
                # Her key is that of no user in `public`.
                User.objects.create_user("carol", pk=7)


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
    "schemas": schemas,
    "users": users,
    "unused": unused,
    "rows": policies,
    "files": files,
}

if __name__ == "__main__":
    django.setup()
    WAYS[os.environ["MCP_TEST_SITE"]]()
