"""Creates the tables and the users of the live site's database."""

import django

from tests.oauth.live.site import GUESTS

if __name__ == "__main__":
    django.setup()

    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    for name in ("ada", *GUESTS):
        get_user_model().objects.create_user(name, password=name)
