"""`python -m tests.interop.schema_site.prepare`: make the database, with two parcels."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import django
from django.core.management import call_command

from tests.interop.schema_site.cases import BIG


def main() -> None:
    """Prepare the database that the settings name."""
    django.setup()
    from tests.interop.schema_site.models import Parcel

    call_command("migrate", run_syncdb=True, verbosity=0)
    shared = {
        "serial": 2**63 - 1,
        "pieces": 3,
        "price": Decimal("19.99"),
        "weight": 0.07,
        "code": UUID("12345678-1234-5678-1234-567812345678"),
        "day": date(2026, 3, 1),
        "moment": datetime(2026, 3, 1, 12, 30, 0, 250000, tzinfo=UTC),
        "closes": time(18, 30),
        "takes": timedelta(days=-1, seconds=1, milliseconds=500),
        "page": "https://exämple.com/straße",
        "mail": "ada@exämple.com",
        "address": "2001:db8::1",
        "slug": "parcel-1",
        "previous": BIG,
        "extra": {"id": BIG, "ids": [BIG, 1]},
    }
    first = Parcel.objects.create(id=BIG, **shared)
    Parcel.objects.create(id=BIG + 1, parent=first, **shared)


if __name__ == "__main__":
    main()
