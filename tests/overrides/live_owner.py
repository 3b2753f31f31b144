"""Creates the owner of the site, who signs in to the admin of the worker processes."""

from __future__ import annotations

import django

NAME, PASSWORD = "owner", "only-for-tests"


def main() -> None:
    """Create the owner."""
    django.setup()
    from django.contrib.auth import get_user_model

    get_user_model().objects.create_superuser(NAME, password=PASSWORD)


if __name__ == "__main__":
    main()
