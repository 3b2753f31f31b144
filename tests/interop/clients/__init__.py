"""Scripts that drive other people's clients, each in an environment of its own.

A script takes `{"targets": {key: {"url", "kind", …}}}` as JSON on its standard input, goes to every
target at once, and prints what it saw by key. What it saw is told in the words of `journey.py`,
whatever the client calls things.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.kit.processes import CACHE

HERE = Path(__file__).parent
# Each in the cache, as its own requirements conflict with ours.
CLIENTS = ("mcp1", "fastmcp")
# Libraries for agents: those that require the first major version of `mcp`, and the second.
FRAMEWORKS = ("frameworks1", "frameworks2")
SCRIPT_SECONDS = 180


def python(environment: str | None) -> Path:
    """The interpreter of an environment; our own has the official client of today."""
    if environment is None:
        return Path(sys.executable)
    return CACHE / "clients" / environment / "bin" / "python"


def pins(environment: str) -> dict[str, str]:
    """The versions that an environment requires, by the names of the packages."""
    lines = (HERE / f"{environment}.txt").read_text().split()
    pairs = (line.split("==") for line in lines)
    return {name.partition("[")[0]: version for name, version in pairs}


def why_missing(environments: Iterable[str]) -> str | None:
    """Why the clients cannot be run, or None when they can."""
    for environment in environments:
        library = python(environment).parents[1] / "lib"
        for name, version in pins(environment).items():
            folder = f"{name.replace('-', '_')}-{version}.dist-info"
            if not [*library.glob(f"python3*/site-packages/{folder}")]:
                return f"{name} {version} is not installed; source .ci/clients.sh"
    return None


def run(script: str, given: Any, *, environment: str | None) -> dict[str, Any]:
    """What a script prints as JSON that is given JSON on its standard input."""
    done = subprocess.run(
        [python(environment), script],
        cwd=HERE,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        timeout=SCRIPT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
