"""The code of each page runs, and what the page shows as an answer is the real one."""

import os
import subprocess
import sys

import pytest

from tests.docs.fences import DOCS, has_code, matches, pages
from tests.kit.processes import REPOSITORY

# These pages are followed as projects, each by a test of its own.
PROJECTS = {"oauth", "oauth-toolkit", "start", "tutorial", "testing"}
# Programs that connect to a site; tests/interop/test_programs.py runs them.
PROGRAMS = {"clients"}
RUN = [name for name, path in pages().items() if has_code(path) and name not in PROJECTS | PROGRAMS]


@pytest.mark.outside
@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs(page, tmp_path):
    settings = {"DJANGO_SETTINGS_MODULE": "tests.docs.settings", "PYTHONPATH": str(REPOSITORY)}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.docs.run", page],
        # The files that a page writes are temporary.
        cwd=tmp_path,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith(" examples\n")


def test_the_pages_are_found():
    assert {*pages()} > PROJECTS | PROGRAMS
    assert len(RUN) > 5
    folders = {DOCS, *(DOCS / name for name in ("intro", "topics", "howto", "ref"))}
    assert {path.parent for path in pages().values()} == folders


@pytest.mark.parametrize(
    ("shown", "real", "expected"),
    [
        ({"a": [1, "…"]}, {"a": [1, "anything"]}, True),
        ({"a": "…"}, {"a": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1], [1, 2], False),
        ("x", "y", False),
    ],
)
def test_an_answer_is_compared_whole(shown, real, expected):
    assert matches(shown, real) is expected
