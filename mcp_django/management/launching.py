"""The command that starts this site's ``mcp stdio`` from anywhere on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.conf import ENVIRONMENT_VARIABLE


def stdio_command(*, server: str | None, user: str | None) -> tuple[str, ...]:
    """This Python, this site's ``manage.py`` (or Django's own entry), and what to serve as whom."""
    chosen = [*(["--server", server] if server else []), *(["--user", user] if user else [])]
    return (sys.executable, *_entry_point(), "stdio", *chosen)


def environment() -> dict[str, str]:
    """What the process needs besides: the settings that are in force now."""
    settings = os.environ.get(ENVIRONMENT_VARIABLE)
    return {ENVIRONMENT_VARIABLE: settings} if settings else {}


def _entry_point() -> tuple[str, ...]:
    script = Path(sys.argv[0])
    # python -m django, and the entry points that a test runner or an installer makes.
    if script.suffix != ".py" or script.name == "__main__.py":
        return ("-m", "django", "mcp", "--pythonpath", str(Path.cwd()))
    return (str(script.resolve()), "mcp")
