"""Creates the clients of a live site that need no browser, from JSON on the standard input.

The clients authenticate with `secret` and `keys` (a key set), and `issuer` is the company's
identity provider. Prints the ids of the clients by their names, as JSON.
"""

import json
import sys

import django

if __name__ == "__main__":
    django.setup()

    from django.contrib.auth import get_user_model
    from oauth2_provider.models import get_application_model

    from mcp_django.models import ExternalIdentity
    from mcp_django.oauth.models import ClientProfile

    given = json.load(sys.stdin)
    robot = get_user_model().objects.create_user("robot")
    ada = get_user_model().objects.get(username="ada")
    ExternalIdentity.objects.create(issuer=given["issuer"], subject="u-1", user=ada)
    made = {}
    for name in ("secret", "key", "assistant"):
        client = get_application_model().objects.create(
            name=name,
            client_type="confidential",
            client_secret=given["secret"],
            authorization_grant_type="client-credentials",
        )
        made[name] = client.client_id
        if name != "assistant":
            ClientProfile.objects.create(
                client_id=client.client_id,
                service_user=robot,
                allowed_scopes=["mcp", "mcp:write", "orders:refund"],
                jwks=given["keys"] if name == "key" else None,
            )
    sys.stdout.write(json.dumps(made))
