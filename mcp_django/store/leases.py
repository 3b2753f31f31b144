"""What one process or one request has for a while, and no other: decided by a row of its own."""

from __future__ import annotations

from django.db.models.functions import Now

from mcp_django.store.databases import after, rows, tables


def take(name: str, *, seconds: float) -> bool:
    """Whether the lease was free; it is taken now, for so many seconds by the database's clock.

    A name has at most 100 characters. Of several that ask at once one gets it.
    """
    leases = rows(tables.Lease)
    if leases.filter(pk=name, until__lte=Now()).update(until=after(seconds)):
        return True
    _, is_new = leases.get_or_create(pk=name, defaults={"until": after(seconds)})
    return is_new
