"""The page that a newcomer reads first, followed word by word."""

from __future__ import annotations

import html
import tomllib
import urllib.request

import pytest

from tests.docs.project import Project
from tests.kit.processes import REPOSITORY

pytestmark = pytest.mark.outside


def browse(url: str) -> str:
    """Return the text that a browser gets at the address."""
    request = urllib.request.Request(url, headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return html.unescape(response.read().decode())


def test_the_first_page_leads_to_an_answer(tmp_path):
    with Project(tmp_path, settings="mysite.settings") as project:
        project.follow("start")
        written = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
        assert project.arguments_of("pip") == ["install", written["project"]["name"]]
        *command, name, url, option, header = project.arguments_of("claude")
        assert command == ["mcp", "add", "--transport", "http"]
        assert f"{' '.join(command)} {name} {url}" in browse(url)
        assert (name, url) == ("mysite", f"http://127.0.0.1:{project.port}/mcp")
        assert (option, header[:26]) == ("--header", "Authorization: Bearer mcp_")
