"""The site from nothing: its tables are created, and the Python SDK, which validates, uses it."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.sites.programs import migrate, run

SETTINGS = "tests.sites.wagtail.settings"
PREPARE = """
from django.contrib.auth import get_user_model
get_user_model().objects.create_superuser("root", "root@example.org", "x")
"""


@pytest.mark.outside
async def test_the_python_sdk_takes_every_result(tmp_path):
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": SETTINGS}
    environ["MCP_TEST_DATABASE"] = str(tmp_path / "database")
    migrate(environ)
    run(environ, "shell", "-c", PREPARE)
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "django", "mcp", "stdio", "--user", "root"],
        env=environ,
    )
    async with Client(stdio_client(command)) as client:

        async def call(name: str, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content
            return result.structured_content

        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert {"create_recipe", "publish_recipe", "unpublish_recipe"} <= {*tools}
        body = [{"type": "paragraph", "value": "<p>Mix.</p>"}]
        # Wagtail's own migrations create the home page.
        made = await call("create_recipe", parent=2, title="Rye bread", body=body)
        assert (await call("publish_recipe", id=made["id"]))["live"] is True
        changed = await call("update_recipe", id=made["id"], title="Wheat bread")
        assert changed["has_unpublished_changes"] is True
        assert (await call("get_recipe", id=made["id"]))["title"] == "Wheat bread"
        assert (await call("list_recipes"))["items"][0]["body"][0]["value"] == "<p>Mix.</p>"
        preview = await call("delete_recipe", id=made["id"], preview=True)
        done = await call("delete_recipe", id=made["id"])
        assert done["deleted"] == preview["cascade"]
