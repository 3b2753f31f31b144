"""The provider as an ASGI application; `main` prepares its database."""

from __future__ import annotations

import django
from django.core.asgi import get_asgi_application

application = get_asgi_application()


def main(redirect_uri: str) -> None:
    """Create the tables, a user and the client as which our site is registered."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from oauth2_provider.models import Application

    call_command("migrate", verbosity=0)
    get_user_model().objects.create_user("ada.at.acme", password="lovelace")
    Application.objects.create(
        name="Our site",
        client_id="our-site",
        client_secret="our-secret",
        client_type="confidential",
        authorization_grant_type="authorization-code",
        redirect_uris=redirect_uri,
        algorithm="RS256",
        skip_authorization=True,
    )


if __name__ == "__main__":
    import sys

    django.setup()
    main(sys.argv[1])
