"""`python -m tests.admin.by_hand WORD`: somebody uses the admin in a process of its own.

`make` prints a token that was made there, `terminate` ends every session and `revoke` every token.
"""

from __future__ import annotations

import sys
from typing import Any

import django
from django.test import Client
from django.test.utils import override_settings

MODELS = {"terminate": "session", "revoke": "accesstoken"}


def main(word: str) -> None:
    """Sign in, and do it."""
    django.setup()
    from django.contrib.auth import get_user_model

    users: Any = get_user_model().objects
    root = users.filter(username="root").first() or users.create_superuser("root", password="x")
    client = Client()
    client.force_login(root)
    with override_settings(ROOT_URLCONF="tests.admin.urls"):
        if word == "make":
            form = {"username": "root", "name": "elsewhere"}
            response: Any = client.post("/admin/mcp_django/accesstoken/add/", form)
            sys.stdout.write(response.context_data["plaintext"])
            return
        address = f"/admin/mcp_django/{MODELS[word]}/"
        from mcp_django.models import AccessToken, Session

        model = Session if word == "terminate" else AccessToken
        chosen = list(model._default_manager.values_list("pk", flat=True))
        assert chosen
        data = {"action": word, "post": "yes", "_selected_action": chosen}
        assert client.post(address, data).status_code == 302


if __name__ == "__main__":
    main(sys.argv[1])
