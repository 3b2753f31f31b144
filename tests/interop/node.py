"""The official TypeScript clients: installed as pinned, and run in Node by the scripts here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.kit.services import do_without

PROJECT = Path(__file__).parent / "typescript"
# The previous version of the client, which knows no revision after 2025-11-25.
OLDER_PROJECT = Path(__file__).parent / "clients" / "typescript1"
INSTALL_SECONDS = 300
# A script takes half a minute where nothing else runs.
SCRIPT_SECONDS = 240


def install(project: Path = PROJECT) -> None:
    """Install the pinned packages in `node_modules`, from npm's own cache or the registry."""
    if _versions(project / "node_modules" / ".package-lock.json") == _versions(
        project / "package-lock.json"
    ):
        return
    command = ["npm", "ci", "--no-audit", "--no-fund", "--fetch-retries=1", "--loglevel=error"]
    try:
        done = subprocess.run(
            command,
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        do_without(f"npm ci did not end within {INSTALL_SECONDS} seconds")
    if done.returncode != 0:
        # The first of many lines names the reason.
        reason = next(filter(None, done.stderr.splitlines()), "it said nothing")
        do_without(f"npm ci failed: {reason}")


def run(script: str, given: Any, *, project: Path = PROJECT) -> dict[str, Any]:
    """Run a script with JSON on its standard input, and return the JSON that it prints."""
    done = subprocess.run(
        ["node", script],
        cwd=project,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        timeout=SCRIPT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _versions(lock: Path) -> dict[str, str]:
    """Return the packages of a lock file with their versions; none if there is no such file."""
    if not lock.exists():
        return {}
    packages = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    return {path: package["version"] for path, package in packages.items() if path}
