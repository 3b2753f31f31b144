"""Rows for the admin's lists in ``benchmarks.screens``: as many as the largest sites have.

Call ``django.setup()`` before importing this module.
"""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from benchmarks.site.mcp import filler
from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Component, Task
from mcp_django.overrides.sync import components_with_rows, sync_rows
from mcp_django.server import all_servers

SERVERS = 4
# SQL that differs between databases: a number series, a time some seconds ago, and a JSON type.
DIALECTS = {
    "sqlite": {
        "numbers": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %s)",
        "ago": "datetime('now', '-' || {} || ' seconds')",
        "json": "TEXT",
    },
    "postgresql": {
        "numbers": "WITH n(i) AS (SELECT generate_series(1, %s::bigint))",
        "ago": "now() - {} * interval '1 second'",
        "json": "JSONB",
    },
}
# Numbers in names begin at 1000, so that all names have the same length. Each tool is called on the
# server that has it. A day has about 10 000 calls.
CALLS = """
INSERT INTO mcp_django_call (tenant, token, at, server, kind, component, uri, origin, user_key,
  user_name, acting_user, client_id, client, revision, transport, session, trace_id, writes,
  outcome, code, reason, ms, "rows", bytes, argument_names, arguments_digest, arguments, problems)
{numbers}
SELECT '', 'call-' || i, {ago}, 'server-' || (i % 4), 'tool', 'tool-' || (1000 + i * 7917 % 1000),
  '', 'client', 'user:' || (i % 5000), 'user-' || (i % 5000), '', '', 'client ' || (i % 10),
  '2026-07-28', 'http', '', '0000000000000000' || (1000000000000000 + i), i % 5 = 0,
  CASE WHEN i % 50 = 0 THEN 'failed' ELSE 'ok' END, NULL, '', (i % 200) / 2.0, i % 30, 500,
  CAST('["a", "b"]' AS {json}), '{digest}', NULL, CAST('[]' AS {json})
FROM n
"""

USERS = 50
STATUSES = ("working", "input_required", "completed", "failed", "cancelled")

_servers: list[MCPServer] = []


def create_components(count: int) -> None:
    """Create components on all servers with a row for each; every tenth row has an override."""
    missing = count - sum(1 for server in all_servers() for _ in components_with_rows(server))
    for number in range(SERVERS):
        server = MCPServer(f"server-{number}", permission=AllowAny)
        # Servers are registered by weak reference, so keep one here.
        _servers.append(server)
        for n in range(number, missing, SERVERS):
            server.tool(f"tool-{1000 + n}", read_only=True)(filler)
    sync_rows(all_servers())
    tenth = Component.objects.filter(key__endswith="0", kind=Component.Kind.TOOL)
    tenth.update(title="Look it up", rate="100/h")


def create_calls(count: int) -> None:
    """Create call records of these tools, one every eight seconds until now."""
    dialect = DIALECTS[connection.vendor]
    statement = CALLS.format(
        numbers=dialect["numbers"],
        ago=dialect["ago"].format(f"(({count:d} - i) * 8)"),
        json=dialect["json"],
        digest="0" * 64,
    )
    with connection.cursor() as cursor:
        # Only %s is a parameter; escape the other percent signs, which are modulo operators.
        cursor.execute(statement.replace("%", "%%").replace("%%s", "%s"), [count])
        cursor.execute("ANALYZE")


def create_tasks(count: int) -> None:
    """Create tasks of some users, each with a result of one kilobyte."""
    model, expires_at = get_user_model(), timezone.now() + timedelta(hours=1)
    users = model.objects.bulk_create(model(username=f"user-{n}") for n in range(USERS))
    result = {"content": [{"type": "text", "text": "x" * 1000}]}
    Task.objects.bulk_create(
        (
            Task(
                server=f"server-{n % SERVERS}",
                tool=f"tool-{1000 + n % 1000}",
                principal=f"user:{users[n % USERS].pk}",
                user=users[n % USERS],
                client_info={"name": "client"},
                protocol_version="2026-07-28",
                status=STATUSES[n % len(STATUSES)],
                status_message=f"step {n}",
                expires_at=expires_at,
                ttl_ms=3_600_000,
                poll_ms=2000,
                result=result,
            )
            for n in range(count)
        ),
        batch_size=1000,
    )
