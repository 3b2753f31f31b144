"""The site's REST API is the same to the byte, whether its views are tools or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.outside

ROOT = Path(__file__).parents[3]


def recorded(*options: str) -> dict[str, Any]:
    """Return the output of a process of its own, without other registrations."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integrations.rest.record", *options],
        cwd=ROOT,
        # REST framework writes the members of a set, whose order differs between processes.
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    recording: dict[str, Any] = json.loads(done.stdout)
    return recording


def test_every_endpoint_answers_byte_for_byte_the_same():
    before, after = recorded(), recorded("--mcp")
    assert after["tools"] > 50
    assert len(before["answers"]) > 60
    for expected, actual in zip(before["answers"], after["answers"], strict=True):
        assert expected == actual
    statuses = {answer[2] for answer in before["answers"]}
    assert statuses >= {200, 201, 204, 302, 400, 403, 404, 405, 429, 500}
