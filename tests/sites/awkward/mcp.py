"""What the awkward site exposes, found by autodiscovery."""

from __future__ import annotations

from mcp_django import Context, ToolError, mcp
from tests.sites.awkward.models import Reading


@mcp.tool
def keep_reading(ctx: Context, value: int, fail: bool = False) -> str:
    """Keep a reading, and fail afterwards if asked to."""
    Reading.objects.create(value=value)
    if fail:
        raise ToolError("Not kept.")
    return f"kept for {ctx.user.email}"


@mcp.tool(read_only=True)
async def count_readings() -> str:
    """Count the readings."""
    return str(await Reading.objects.acount())
