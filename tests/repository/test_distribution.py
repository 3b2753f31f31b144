"""The wheel and the source distribution hold what a site needs, and nothing else."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from mcp_django import __version__
from tests.kit.processes import REPOSITORY

pytest.importorskip("build", reason="build and twine come with the extra [outside]")
pytest.importorskip("twine", reason="build and twine come with the extra [outside]")
pytestmark = pytest.mark.outside

PACKAGE = REPOSITORY / "mcp_django"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder of both, built from this checkout."""
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(place), str(REPOSITORY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_both_are_as_package_indexes_want_them(built):
    files = sorted(map(str, built.iterdir()))
    assert [Path(file).suffix for file in files] == [".whl", ".gz"]
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_holds_the_package_whole(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"django_mcp_provider-{__version__}.dist-info/METADATA").decode()
    info = f"django_mcp_provider-{__version__}.dist-info/"
    assert {name for name in names if not name.startswith(("mcp_django/", info))} == set()
    expected = {
        path.relative_to(REPOSITORY).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {name for name in names if name.startswith("mcp_django/")} == expected
    for needed in ("mcp_django/py.typed", "mcp_django/locale/de/LC_MESSAGES/django.mo"):
        assert needed in names
    assert f"{info}licenses/LICENSE" in names
    assert "License-Expression: BSD-3-Clause" in metadata
    assert "Project-URL: Documentation, https://" in metadata


def test_the_source_distribution_can_be_tested(built):
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= names
    assert {"mcp_django/__init__.py", "tests/conftest.py", "docs/index.md"} <= names
    assert not [name for name in names if name.startswith((".venv", ".git/"))]
