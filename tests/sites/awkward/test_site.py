"""The awkward site works like any other."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from mcp_django.asgi import get_asgi_application
from mcp_django.models import AccessToken
from mcp_django.test import MCPClient
from tests.kit.drivers import headers_for, message, send
from tests.sites.awkward.models import Member, Reading

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "readings", "people"])
PATH = "/acme/api/mcp"


@pytest.fixture
def ada():
    return Member.objects.create(email="ada@example.com")


def call(token: str, tool: str, **arguments: Any) -> Any:
    body = message("tools/call", {"name": tool, "arguments": arguments})
    headers = headers_for(body, authorization=f"Bearer {token}")
    return Client().post(PATH, json.dumps(body), content_type="application/json", headers=headers)


def test_migrations_and_checks_are_clean():
    call_command("makemigrations", "mcp_django", check=True, dry_run=True, verbosity=0)
    call_command("check", fail_level="WARNING")


def test_a_token_of_a_user_with_a_uuid_lets_in(ada):
    out = StringIO()
    call_command("mcp", "token", "create", "ada@example.com", "--json", stdout=out)
    token = json.loads(out.getvalue())["token"]
    answer = call(token, "keep_reading", value=5)
    assert answer.json()["result"]["content"][0]["text"] == "kept for ada@example.com"
    assert Reading.objects.get().value == 5


def test_naive_times_expire_tokens_too(ada):
    past = datetime.now() - timedelta(days=1)  # noqa: DTZ005 - as USE_TZ = False wants it
    _, token = AccessToken.objects.issue(ada, name="old", expires=past)
    assert call(token, "count_readings").status_code == 401
    _, token = AccessToken.objects.issue(ada, name="new", expires=past + timedelta(days=2))
    assert call(token, "count_readings").json()["result"]["content"][0]["text"] == "0"


def test_a_failure_rolls_back_the_database_that_the_router_chose(ada):
    client = MCPClient(user=ada)
    assert client.call_tool("keep_reading", {"value": 5, "fail": True}, check=False).is_error
    assert not Reading.objects.exists()


def test_the_address_is_below_the_script_name_and_the_tenant():
    assert reverse("mcp_django:endpoint", kwargs={"tenant": "acme"}) == f"/below{PATH}"


async def test_the_lane_finds_the_endpoint_and_its_streams(ada):
    _, token = await sync_to_async(AccessToken.objects.issue)(ada, name="lane")
    app = get_asgi_application()
    body = message("tools/call", {"name": "keep_reading", "arguments": {"value": 1}})
    answer = await send(app, f"/below{PATH}", body, authorization=f"Bearer {token}")
    assert answer.json()["result"]["content"][0]["text"] == "kept for ada@example.com"
    body = message("tools/call", {"name": "count_readings", "arguments": {}})
    answer = await send(app, f"/below{PATH}/", body, authorization=f"Bearer {token}")
    assert answer.json()["result"]["content"][0]["text"] == "1"
