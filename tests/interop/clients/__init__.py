"""Scripts that drive clients written by others, each in an environment of its own.

A script takes `{"targets": {key: {"url", "kind", …}}}` as JSON on its standard input, goes to all
targets at the same time, and prints what it saw by key. The results have the names of
`journey.py`, whatever the client calls them.
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
# Each has an environment in the cache, as its requirements conflict with ours.
CLIENTS = ("mcp1", "fastmcp")
# Libraries for agents: those that require the first major version of `mcp`, and the second.
FRAMEWORKS = ("frameworks1", "frameworks2")
SCRIPT_SECONDS = 180


def python(environment: str | None) -> Path:
    """Return the interpreter of an environment; ours has the current official client."""
    if environment is None:
        return Path(sys.executable)
    return CACHE / "clients" / environment / "bin" / "python"


def pins(environment: str) -> dict[str, str]:
    """Return the versions that an environment requires, by the names of the packages."""
    lines = (HERE / f"{environment}.txt").read_text().split()
    pairs = (line.split("==") for line in lines)
    return {name.partition("[")[0]: version for name, version in pairs}


def why_missing(environments: Iterable[str]) -> str | None:
    """Return why the clients cannot be run, or None if they can."""
    for environment in environments:
        library = python(environment).parents[1] / "lib"
        for name, version in pins(environment).items():
            folder = f"{name.replace('-', '_')}-{version}.dist-info"
            if not [*library.glob(f"python3*/site-packages/{folder}")]:
                return f"{name} {version} is not installed; source .ci/clients.sh"
    return None


def run(script: str, given: Any, *, environment: str | None) -> dict[str, Any]:
    """Run a script with JSON on its standard input, and return the JSON that it prints."""
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
