"""`python -m tests.interop.framework_site.prepare`: make the database and print an access token.

Two users joined in 2026, which is what the programs on the page count.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import django
from django.core.management import call_command

JOINED = {"alice": 2025, "ada": 2026, "bob": 2026}


def main() -> None:
    """Prepare the database that the settings name."""
    django.setup()
    from django.contrib.auth import get_user_model

    from mcp_django.models import AccessToken

    call_command("migrate", verbosity=0)
    users = [
        get_user_model().objects.create_user(name, date_joined=datetime(year, 3, 1, tzinfo=UTC))
        for name, year in JOINED.items()
    ]
    _, plaintext = AccessToken.objects.issue(users[0], name="programs")
    sys.stdout.write(plaintext)


if __name__ == "__main__":
    main()
