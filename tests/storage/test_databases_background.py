"""``BACKGROUND``: where work runs that no request waits for, outside of a test runner."""

import json

import pytest

from tests.kit.processes import run_python

PROGRAM = """
import json, sys, threading
from django.conf import settings
from django.core.management import call_command
import django

file, background, tool = sys.argv[1:]
settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": file}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "mcp_django"],
    MCP_DJANGO={"BACKGROUND": background or None},
    ROOT_URLCONF="__main__",
    SECRET_KEY="not a secret",
    USE_TZ=True,
)
django.setup()
call_command("migrate", verbosity=0)

from django.test import Client
from django.urls import path
from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Call, Component
from mcp_django.storage.call_rows import call_log
from tests.kit.drivers import headers_for, message

server = MCPServer("site", permission=AllowAny)

@server.tool(read_only=True)
def read() -> str:
    return "done"

@server.tool
async def write() -> str:
    return "done"

urlpatterns = [path("mcp", server.view)]
body = message("tools/call", {"name": tool, "arguments": {}})
sent = {"content_type": "application/json", "headers": headers_for(body)}
answer = Client().post("/mcp", body, **sent)
assert answer.json()["result"]["content"][0]["text"] == "done", answer.content
rows = list(Call.objects.values_list("component", "outcome"))
threads = {thread.name for thread in threading.enumerate()}
call_log.flush()
print(json.dumps({
    "at once": rows, "later": list(Call.objects.values_list("component", "outcome")),
    "threads": sorted(name for name in threads if name.startswith("mcp-")),
}))
"""


@pytest.mark.outside
@pytest.mark.parametrize("tool", ["read", "write"])
@pytest.mark.parametrize("background", ["threads", "inline", ""])
def test_rows_are_written_where_the_setting_says(tmp_path, background, tool):
    report = json.loads(run_python("-c", PROGRAM, str(tmp_path / "db.sqlite3"), background, tool))
    assert report["later"] == [[tool, "ok"]]
    if background == "inline":
        assert report["at once"] == [[tool, "ok"]]
        assert report["threads"] == []
    else:
        assert "mcp-calls" in report["threads"]
        # A call that may write waits for its row.
        assert report["at once"] == ([[tool, "ok"]] if tool == "write" else [])
