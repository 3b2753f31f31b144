"""Pictures that are too large for an event, which the official Python client would refuse."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.interop.sdk import connected
from tests.interop.session_server import MIGRATE_SECONDS, session_site
from tests.kit.processes import START_SECONDS

pytestmark = [pytest.mark.outside, pytest.mark.timeout(MIGRATE_SECONDS + START_SECONDS)]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Yield the address of the server with pictures."""
    with session_site(Path(tmp_path_factory.mktemp("pictures"))) as site:
        yield f"{site}/pictures/mcp"


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_a_picture_arrives_or_the_caller_reads_why_not(url, mode):
    heard = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    options: dict[str, Any] = {"progress_callback": on_progress}
    async with connected(url, mode=mode) as client:
        plain = await client.call_tool("picture")
        assert len(base64.b64decode(plain.content[0].data)) == 1_500_004
        announced = await client.call_tool("picture", {"announced": True}, **options)
        assert announced.is_error
        assert "at most 1048576 can be sent on a stream" in announced.content[0].text
        assert heard == [1]
        silent = await client.call_tool("picture", **options)
        # In a session, the stream has begun before the result is known.
        assert silent.is_error == (mode == "legacy")
