"""`python -m tests.integrations.rest.record [--mcp]` prints what the REST API answers.

With ``--mcp``, every view is registered and every tool is called once before.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

import django
from django.core.cache import cache
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from django.test.utils import setup_test_environment

JSON = "application/json"
TOKEN = re.compile(r"\b[a-zA-Z0-9]{64}\b")
WHEN = "2026-02-03T04:05:06Z"
# User, method, path and body.
REQUESTS: list[tuple[str, str, str, Any]] = [
    ("", "get", "/greet/Ada/", None),
    ("ada", "get", "/greet/Ada/3/", None),
    ("", "post", "/greet/Ada/", {}),
    ("", "post", "/ping/", {"x": 1}),
    ("ada", "post", "/ping/", {"x": 1}),
    ("ada", "post", "/ping/", {"x": 2}),
    ("ada", "post", "/ping/", {"x": 3}),
    ("", "get", "/add/1/2/", None),
    ("", "post", "/add/1/2/", {"y": [1]}),
    ("", "options", "/add/1/2/", None),
    ("", "get", "/products/?size=l&price_min=1&ordering=-name", None),
    ("", "get", "/products/?page=2", None),
    ("", "get", "/products/?page=9", None),
    ("", "get", "/products/?size=zzz", None),
    ("", "get", "/products/?format=api", None),
    ("", "options", "/products/", None),
    ("", "get", "/products/apple/", None),
    ("", "get", "/products/none/", None),
    ("", "get", "/tags/1/", None),
    ("", "patch", "/tags/1/", {"word": "salty"}),
    ("", "put", "/tags/1/", {}),
    ("", "delete", "/tags/2/", None),
    ("", "post", "/customers/", {"name": "Eve"}),
    ("ada", "post", "/customers/", {"name": "Eve"}),
    ("ada", "post", "/customers/", {"name": "Eve", "email": "eve@shop.test", "password": "p"}),
    ("", "get", "/customers/1/orders/", None),
    ("", "get", "/ledger/", None),
    ("", "get", "/ledger/?cursor=zzz", None),
    ("ada", "get", "/rare/", None),
    ("ada", "get", "/rare/", None),
    ("ada", "get", "/friends/", None),
    ("friend", "get", "/friends/", None),
    ("", "post", "/feedback/", {"text": "x"}),
    ("", "get", "/csv/", None),
    ("", "get", "/picture/", None),
    ("", "get", "/v7/path/", None),
    ("", "get", "/header/", None),
    ("", "get", "/query/?version=8", None),
    ("", "get", "/odd/value/", None),
    ("", "get", "/outcome/html/", None),
    ("", "get", "/outcome/redirect/", None),
    ("", "get", "/outcome/bug/", None),
    ("", "get", "/outcome/none/", None),
    ("", "get", "/", None),
    ("", "get", "/orders/", None),
    ("ada", "get", "/orders/", None),
    ("ada", "get", "/orders/?format=api", None),
    ("ada", "options", "/orders/A-1/", None),
    ("ada", "head", "/orders/A-1/", None),
    ("ada", "get", "/orders/A-1.json", None),
    ("ada", "get", "/orders/B-1/", None),
    ("ada", "post", "/orders/", {"number": "13"}),
    ("ada", "post", "/orders/", {"number": "A-8", "customer": 1, "placed_at": WHEN}),
    ("ada", "patch", "/orders/A-2/", {"status": "paid"}),
    ("ada", "post", "/orders/A-1/pay/", {"amount": "5.00", "pin": "1234"}),
    ("ada", "post", "/orders/A-1/ship/", {}),
    ("ada", "get", "/orders/recent/", None),
    ("ada", "get", "/orders/A-1/label/", None),
    ("ada", "get", "/orders/A-1/notes/", None),
    ("ada", "delete", "/orders/A-1/notes/", None),
    ("ada", "delete", "/orders/A-2/", None),
    ("", "get", "/categories/?limit=1", None),
    ("", "get", "/categories/fruit/", None),
    ("", "patch", "/wares/apple/", {"category": "misc"}),
    ("", "get", "/moods/", None),
    ("", "get", "/moods/5/", None),
    ("", "post", "/moods/", {"a": 1}),
    ("", "get", "/orders/A-1/lines/", None),
]
ARGUMENTS: dict[str, Any] = {
    "number": "A-1",
    "order_number": "A-1",
    "customer_pk": 1,
    "pk": 1,
    "slug": "apple",
    "name": "Ada",
    "a": 1,
    "b": 2,
    "kind": "x",
    "how": "none",
    "word": "new",
    "text": "x",
    "stars": 2,
}


def recorded() -> list[Any]:
    """Return status, headers and body of every answer."""
    from django.contrib.auth import get_user_model

    answers = []
    for username, verb, path, sent in REQUESTS:
        client = Client(raise_request_exception=False)
        if username:
            client.force_login(get_user_model().objects.get(username=username))
        content = {} if sent is None else {"data": json.dumps(sent), "content_type": JSON}
        response = client.generic(verb.upper(), path, **content)
        headers = sorted(response.headers.items())
        # The token of the browsable API's forms differs each time.
        body = TOKEN.sub("TOKEN", response.content.decode("latin-1"))
        answers.append([verb, path, response.status_code, headers, body])
    return answers


def use_tools() -> int:
    """Register every view, call every tool as two users, and leave no trace in the database."""
    from django.contrib.auth import get_user_model

    from mcp_django.test import MCPClient
    from tests.integrations.rest.site import rest_server

    server, count = rest_server(), 0
    with transaction.atomic():
        for username in ("ada", "friend"):
            user = get_user_model().objects.get(username=username)
            client = MCPClient(server=server, user=user, raise_exceptions=False)
            for tool in client.list_tools():
                known = tool["inputSchema"]["properties"]
                arguments = {name: value for name, value in ARGUMENTS.items() if name in known}
                count += not client.call_tool(tool["name"], arguments, check=False).is_error
        transaction.set_rollback(True)
    return count


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.integrations.rest.settings"
    django.setup()
    setup_test_environment()
    call_command("migrate", run_syncdb=True, verbosity=0)
    from tests.integrations.rest.site import fill

    fill()
    count = use_tools() if "--mcp" in sys.argv else 0
    cache.clear()
    sys.stdout.write(json.dumps({"tools": count, "answers": recorded()}))


if __name__ == "__main__":
    main()
