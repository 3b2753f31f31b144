"""Run a command of this site in a process, as a line of a shell has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.kit.processes import REPOSITORY

SETTINGS = "tests.management.shell.settings"
MANAGE = ("manage.py", "mcp")
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("DJANGO_", "PYTHONIOENCODING"))
}


def shell(
    line: str, arguments: Sequence[str], *, settings: str | None = SETTINGS, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a line of bash, in which `"$@"` runs Python with these arguments."""
    chosen = {"DJANGO_SETTINGS_MODULE": settings} if settings else {}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line, "bash", sys.executable, *arguments],
        env={**ENVIRONMENT, **chosen, **variables},
        capture_output=True,
        cwd=REPOSITORY,
        timeout=240,
        check=False,
    )
    out, err = (text.decode(errors="surrogateescape") for text in (done.stdout, done.stderr))
    assert "Traceback" not in err or "--traceback" in arguments, err
    assert "Exception ignored" not in err
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)
