"""The public surface: what is exported is meant to be, and is importable without a site."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mcp_django
from mcp_django import exceptions

ROOT = Path(__file__).resolve().parents[1]


def test_every_exported_name_exists_and_the_list_is_sorted():
    # As the linter sorts them: names in capitals first.
    names = sorted(mcp_django.__all__, key=lambda name: (not name.isupper(), name))
    assert mcp_django.__all__ == names
    for name in mcp_django.__all__:
        assert hasattr(mcp_django, name)


def test_every_public_name_is_exported():
    public = {
        name
        for name, value in vars(mcp_django).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert public == set(mcp_django.__all__)


def test_every_exception_is_exported_and_drawn():
    defined = {
        name
        for name, value in vars(exceptions).items()
        if inspect.isclass(value)
        and issubclass(value, (exceptions.MCPDjangoError, exceptions.InputRequired))
    }
    assert defined == set(exceptions.__all__)
    for name in exceptions.__all__:
        assert name in (exceptions.__doc__ or ""), name


def bare(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter of its own, without settings."""
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.outside
def test_the_package_is_importable_in_a_bare_interpreter():
    result = bare(
        "import mcp_django, sys\n"
        "from django.conf import settings\n"
        "from mcp_django import *\n"
        "server = MCPServer('x')\n"
        "@server.tool\n"
        "def add(a: int) -> int: return a\n"
        "@server.resource('x://{n}')\n"
        "def one(n: int) -> str: return ''\n"
        "@server.prompt\n"
        "def ask(n: int) -> str: return ''\n"
        "@mcp.tool\n"
        "def other(a: int) -> int: return a\n"
        "assert not settings.configured\n"
        "for name in ('mcp_django.models', 'rest_framework', 'oauth2_provider', 'daphne'):\n"
        "    assert name not in sys.modules, name\n"
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.outside
@pytest.mark.parametrize("module", ["mcp_django.pytest_plugin", "mcp_django.exceptions"])
def test_what_a_site_imports_early_needs_no_settings(module):
    result = bare(f"import {module}")
    assert (result.returncode, result.stderr) == (0, "")
