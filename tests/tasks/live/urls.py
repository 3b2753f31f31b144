"""The server that web processes serve. Workers import this module, because they have no mount."""

from __future__ import annotations

import os
import time
from pathlib import Path

from django.urls import path

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.storage import task_rows
from mcp_django.tasks import runs as task_runs

# No test waits half a minute for the lease of a killed worker to expire.
task_rows.LEASE_SECONDS = 3
task_runs.RENEW_SECONDS = 0.5
LOOK_SECONDS = 0.02
PATIENCE = 60

server = MCPServer("live", permission=AllowAny)


@server.tool(task="optional")
def work(ctx: Context, place: str, ask: bool = False) -> str:
    """Begin, and go on when the test has put down a file that says so."""
    name = ctx.elicit("Name?", str) if ask else "nobody"
    Path(f"{place}.begun").write_text(str(os.getpid()))
    ctx.report_progress(1, 2, "half way")
    deadline = time.monotonic() + PATIENCE
    while not Path(f"{place}.go").exists() and not ctx.cancelled:
        if time.monotonic() > deadline:
            raise TimeoutError(place)
        time.sleep(LOOK_SECONDS)
    Path(f"{place}.ended").write_text("cancelled" if ctx.cancelled else "done")
    return f"done for {name}"


urlpatterns = [path("mcp", server.urls)]
