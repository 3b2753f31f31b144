"""What the scripts `features_….py` share: their input, their output, and what a host answers.

A script takes `{"url", "token"}` as JSON on its standard input, uses each feature of the server
`features` of `tests/interop/framework_site` that its client has, and prints what it got by feature.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

# A script ends within this time; no test asserts how long it takes.
SECONDS = 150
NAME = "Ada"
SUMMARY = "Short."
NEWS = "shop://news"
TOPIC = {"topic": "books"}
TEXT = {"text": "Long."}


def run(use: Callable[[str, dict[str, str]], Awaitable[dict[str, Any]]]) -> None:
    """Use all features of a client, which is given the URL and the headers."""
    given = json.load(sys.stdin)
    headers = {"Authorization": f"Bearer {given['token']}"}

    async def bounded() -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            return await use(given["url"], headers)

    sys.stdout.write(json.dumps(asyncio.run(bounded())))
