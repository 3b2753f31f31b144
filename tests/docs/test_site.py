"""The pages build without a warning, and the reference names everything that is public."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mcp_django
import mcp_django.auth.permissions
import mcp_django.test
from docs import options
from mcp_django.components.options import PromptOptions, ResourceOptions, ToolOptions
from mcp_django.conf import DOCUMENTATION, docs_url
from tests.docs.fences import DOCS, addresses
from tests.kit.processes import REPOSITORY


@pytest.mark.outside
def test_the_pages_build_without_a_warning(tmp_path):
    arguments = ["-W", "--keep-going", "-n", "-q", "-b", "html"]
    result = subprocess.run(
        [sys.executable, "-m", "sphinx", *arguments, "-d", tmp_path / "cache", DOCS, tmp_path],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert result.stderr == ""
    assert result.returncode == 0
    assert "prompts" in (tmp_path / "topics" / "prompts.html").read_text()
    # The documentation for language models: an index, and all pages in one text.
    index, whole = (tmp_path / name for name in ("llms.txt", "llms-full.txt"))
    assert f"[Quick start]({DOCUMENTATION}_sources/intro/start.md.txt)" in index.read_text()
    assert "# Rate limits, quotas and read-only limits" in whole.read_text()


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (mcp_django, mcp_django.__all__),
        (mcp_django.test, mcp_django.test.__all__),
        (
            mcp_django.auth.permissions,
            ["AllowAny", "BasePermission", "HasCodename", "IsAuthenticated", "IsStaff"],
        ),
    ],
)
def test_the_reference_names_everything_that_is_public(module, names):
    page = (DOCS / "ref/api.md").read_text()
    named = re.findall(r"^\.\. (?:auto\w+|py:data):: ([\w.]+)", page, re.MULTILINE)
    assert {*names} <= {name.rpartition(".")[2] for name in named}
    assert all(hasattr(module, name) for name in names)


def test_the_table_of_options_is_made_from_the_code():
    assert options.PAGE.read_text() == options.page(), "run python -m docs.options"
    documented = [
        {name for name, kinds, _ in options.options() if kind in kinds} for kind in options.KINDS
    ]
    declared = [
        {*declaration.__annotations__}
        for declaration in (ToolOptions, ResourceOptions, PromptOptions)
    ]
    assert documented == declared


def test_texts_link_to_pages_that_exist():
    """Hints and errors of the package link to the documentation by its address."""
    package = REPOSITORY / "mcp_django"
    code = "\n".join(path.read_text() for path in package.rglob("*.py"))
    linked = set(re.findall(r"""docs_url\(["']([^"']+)["']\)""", code))
    assert linked >= {"ref/settings", "topics/limits", "topics/tasks"}
    for page, _, anchor in (link.partition("#") for link in linked):
        assert page in addresses(), page
        assert not anchor or anchor in headings(addresses()[page]), (page, anchor)
    # Readers of an installed package do not have the folder of the repository.
    assert not re.findall(r"\bdocs/(?:(?:intro|topics|howto|ref)/)?[\w-]+\.md", code)
    metadata = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    urls = metadata["project"]["urls"]
    assert urls == {"Documentation": DOCUMENTATION, "Changelog": docs_url("ref/changes")}


def test_the_links_of_the_readme_work_on_a_package_index():
    text = (REPOSITORY / "README.md").read_text()
    linked = re.findall(rf"\]\({re.escape(DOCUMENTATION)}([\w/-]+)\.html(?:#([\w-]+))?\)", text)
    assert len(linked) > 20
    for page, anchor in linked:
        assert page in addresses(), page
        assert not anchor or anchor in headings(addresses()[page]), (page, anchor)
    pictures = re.findall(rf"\]\({re.escape(DOCUMENTATION)}(_static/[\w.-]+)\)", text)
    assert pictures
    assert all((DOCS / picture).is_file() for picture in pictures)
    # The remaining links lead to files of the repository.
    others = set(re.findall(r"\]\((?!https?://)([^)#]+)\)", text))
    assert others == {"demo_project/desk/mcp.py", "ARCHITECTURE.md", "CONTRIBUTING.md"}


def headings(path: Path) -> set[str]:
    """Return the anchors of a page."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
