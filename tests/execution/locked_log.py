"""A program: calls while another connection has locked the database of the call log.

Prints what the calls answered, and the rows when the lock is gone, as JSON.
"""

import json
import sqlite3
import sys
import time

import django
from django.conf import settings
from django.core.management import call_command

FILE = sys.argv[1]
LOCK_SECONDS, QUEUE_SECONDS = 0.2, 1

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": FILE,
            "OPTIONS": {"timeout": LOCK_SECONDS},
        }
    },
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "mcp_django"],
    LOGGING_CONFIG=None,
    MCP_DJANGO={"QUEUE_SECONDS": QUEUE_SECONDS},
    ROOT_URLCONF=__name__,
    SECRET_KEY="not a secret",
    USE_TZ=True,
)
django.setup()
call_command("migrate", verbosity=0)

from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402

from mcp_django import MCPServer  # noqa: E402
from mcp_django.auth.permissions import AllowAny  # noqa: E402
from mcp_django.models import Call  # noqa: E402
from mcp_django.storage.call_rows import call_log  # noqa: E402
from tests.kit.drivers import headers_for, message  # noqa: E402

server = MCPServer("site", permission=AllowAny)
ran = []


@server.tool(read_only=True)
def read() -> str:
    ran.append("read")
    return "done"


@server.tool(read_only=True)
async def read_later() -> str:
    ran.append("read_later")
    return "done"


@server.tool
def write() -> str:
    ran.append("write")
    return "done"


@server.tool
async def write_later() -> str:
    ran.append("write_later")
    return "done"


urlpatterns = [path("mcp", server.view)]


def call(tool: str) -> str:
    body = message("tools/call", {"name": tool, "arguments": {}})
    sent = {"content_type": "application/json", "headers": headers_for(body)}
    answer = Client().post("/mcp", body, **sent).json()
    return (
        answer["error"]["message"] if "error" in answer else answer["result"]["content"][0]["text"]
    )


if __name__ == "__main__":
    # This call caches the overrides.
    call("read")
    call_log.flush()
    ran.clear()
    other = sqlite3.connect(FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    answers = {tool: call(tool) for tool in ("read", "read_later", "write", "write_later")}
    seconds = time.monotonic() - began
    other.execute("ROLLBACK")
    again = call("write")
    call_log.flush()
    rows = Call.objects.order_by("id").values_list("component", "outcome")
    shown = {"answers": answers, "again": again, "ran": ran, "seconds": seconds}
    sys.stdout.write(json.dumps({**shown, "rows": sorted(rows), "lost": call_log.lost}))
