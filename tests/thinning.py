"""Fewer tests for a ring that repeats the suite on other versions of what it stands on.

The suite asks every mount the same, and the README's line runs all of it. With
`MCP_TEST_MOUNTS=one` in the environment each of those tests meets one mount, which is the same one
in every run; the tests of a file are spread over all of them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from zlib import crc32

import pytest

# What the fixtures are called whose parameters are names of mounts.
FIXTURES = ("mount", "streaming", "app")


def is_wanted() -> bool:
    """Whether this run is to be thinned."""
    return os.environ.get("MCP_TEST_MOUNTS") == "one"


def thin(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """What is kept of these tests and what is left out, each in its order."""
    alike: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        alike[_without_mount(item)].append(item)
    kept = {
        sorted(group, key=lambda item: item.nodeid)[crc32(name.encode()) % len(group)]
        for name, group in alike.items()
    }
    return [item for item in items if item in kept], [item for item in items if item not in kept]


def _without_mount(item: pytest.Item) -> str:
    """What a test has in common with those that ask another mount the same."""
    called = getattr(item, "callspec", None)
    mounts = {called.params[name] for name in FIXTURES if name in called.params} if called else ()
    name = item.nodeid
    for mount in mounts:
        if isinstance(mount, str):
            before, _, values = name.partition("[")
            parts = values.removesuffix("]").split("-")
            # A mount that is not in the id is named by something else.
            if mount in parts:
                parts[parts.index(mount)] = ""
            name = f"{before}[{'-'.join(parts)}]"
    return name
