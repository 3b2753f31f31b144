"""The pages for contributors name files, functions and classes that exist."""

from __future__ import annotations

import re

import pytest

from tests.kit.processes import REPOSITORY

PAGES = ("docs/ref/changing.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
# Examples on the pages, and names of other packages and of settings.
OTHERS = {"BaseException", "ModelAdmin", "PROTOCOL_VERSIONS", "test_a_hidden_tool_looks_unknown"}


def words_of(page):
    text = (REPOSITORY / page).read_text()
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text))


@pytest.mark.parametrize("page", PAGES)
def test_the_paths_on_the_page_exist(page):
    paths = [word for word in words_of(page) if re.fullmatch(r"(?:mcp_django|tests)/[\w/.]+", word)]
    assert paths
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_names_on_the_page_are_in_the_code(page):
    code = "\n".join(
        path.read_text()
        for folder in ("mcp_django", "tests")
        for path in (REPOSITORY / folder).rglob("*.py")
    )
    defined = set(re.findall(r"(?:def|class) (\w+)|^ *(\w+)(?:: [^=\n]+)? = ", code, re.MULTILINE))
    known = {name for names in defined for name in names}
    # A class in CamelCase, or a name with an underscore, perhaps after its module or class.
    names = {
        name
        for word in words_of(page)
        if re.fullmatch(r"[A-Za-z_.]+(?:\(\))?", word)
        for name in [word.removesuffix("()").rpartition(".")[2]]
        if re.fullmatch(r"_?[a-z]+_[a-z_]+|(?:[A-Z][a-z]+){2,}|(?!MCP_)[A-Z]+_[A-Z_]+", name)
    }
    assert names
    assert names - known - OTHERS == set()
