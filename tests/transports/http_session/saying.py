"""Calls a tool of the worker processes' server over WSGI, in a process that runs no event loop."""

from __future__ import annotations

import json
import sys

import django


def main(tool: str) -> None:
    """Call the tool as a client of 2026-07-28."""
    django.setup()
    from tests.kit.drivers import message
    from tests.transports.mounts import wsgi

    answer = wsgi("/mcp", message("tools/call", {"name": tool, "arguments": {}}))
    json.dump(answer.json()["result"]["content"], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
