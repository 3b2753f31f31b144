"""Tenants, each with a schema, and their host names."""

from django_tenants.models import DomainMixin, TenantMixin


class Organization(TenantMixin):
    """A tenant."""

    class Meta:
        app_label = "organizations"


class Domain(DomainMixin):
    """A host name of a tenant."""

    class Meta:
        app_label = "organizations"
