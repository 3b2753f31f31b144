"""Words that do not come back: the glossary's old ones, phrases that readers stumble over, and ids.

The glossary is in ARCHITECTURE.md; the ids of requirements are for the tests and the ledger.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.repository.test_structure import PRONOUNS
from tests.spec.ledger import requirements

ROOT = Path(__file__).resolve().parents[2]
CODE = ("mcp_django", "demo_project", "benchmarks")
TEXTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")

# Phrases, and what to write instead.
ODD = {
    r"who(?:m|so)?ever": "the caller, the user, a client that",
    r"nobody": "no user, no process",
    r"somebody": "another user, a caller",
    r"(?<!there )(?:is|are|was|were) no (?!longer|such|more)[a-z]+": "is not a",
    r"of (?:ours|theirs)": "of this package, of the client",
    r"told of": "notified of",
    r"give[sn]? back": "returns, releases",
    r"(?:let|lets|letting) in": "authorizes",
    r"cancel(?:ed|ing)": "cancelled, as the protocol and Python have it",
    r"turn(?:s|ed)? away": "rejects, rejected",
}
# Old words of the glossary, and the word for each.
OLD = {
    r"lanes?": "fast ASGI handler",
    r"doorbells?|bells?|rung": "pub/sub, notified",
    r"doors?": "rejected request, authorized",
    r"governors?|governed": "query limits, read-only limits",
    r"narrowings?": "override",
    r"journals?": "call log",
    r"row gates?": "row rule",
    r"a yes": "an approval",
    r"musters?": "batch barrier",
    r"tall(?:y|ies)": "usage batch, totals",
    r"lookouts?": "remote cancellation",
    r"glimpses?": "snapshot",
    r"standing streams?": "GET stream",
}
# The demo is about the operations desk of airports, and it is also the name of its app.
DESK = {r"desks?": "short-task threads"}
# Names in code that are old words; those that are on the wire or in rows are not among them.
_OLD_NAME = (
    r"(?:lanes?|bell|rung|door|governor|governed|narrow(?:ed|ing)?|journal|muster|tally|"
    r"lookout|clerk|glimpse|fenced|twins?|ticket|nobody|whoever|somebody)"
)
OLD_NAMES = re.compile(rf"(?:^|_){_OLD_NAME}(?:_|$)", re.IGNORECASE)
# The same in a whole file, where it is not certain that it is a name.
OLD_WORDS = re.compile(rf"(?<![^\W_]){_OLD_NAME}(?![^\W_])", re.IGNORECASE)
# Names of variables that say nothing of what they hold: pronouns, and what tends to follow them.
VAGUE = PRONOUNS | {"item", "entry", "each", "thing", "it"}
_VAGUE = "|".join(sorted(VAGUE))
VAGUE_IN_TEMPLATES = re.compile(
    rf"{{% for (?:\w+, )*(?:{_VAGUE})\b|{{{{ (?:{_VAGUE})\b|{{% \w+ [^%]*\b(?:{_VAGUE})="
)
# Where such a name is a word of pytest, of the example, or a field of a record.
MEANT = {
    "mcp_django/execution/interaction.py": {"asked"},
    "mcp_django/management/doctor_transport.py": {"found"},
    "tests/conftest.py": {"item"},
    "tests/kit/rings.py": {"item"},
    "tests/matrix/site.py": {"item"},
    "tests/oauth/servers.py": {"item"},
    "tests/repository/test_rings.py": {"item"},
    "tests/sites/tenants/mcp.py": {"item"},
}
IDS = re.compile(r"\b[A-Z]+-\d+\b")


def sources() -> list[Path]:
    return [
        path
        for folder in CODE
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "migrations" not in path.parts
    ]


def pages() -> list[Path]:
    folders = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs" / "examples").rglob("*.py")]
    templates = [path for folder in CODE for path in (ROOT / folder).rglob("*.html")]
    return [*(ROOT / name for name in TEXTS), *sorted(folders), *sorted(templates)]


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tokens(path: Path) -> tuple[tokenize.TokenInfo, ...]:
    return tuple(tokenize.generate_tokens(io.StringIO(text_of(path)).readline))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of what people read: all of a page, of code its comments and texts."""
    if path.suffix != ".py":
        yield from enumerate(text_of(path).splitlines(), 1)
        return
    for token in tokens(path):
        is_text = token.type == tokenize.STRING and " " in token.string
        if token.type == tokenize.COMMENT or is_text:
            yield from enumerate(token.string.splitlines(), token.start[0])


def occurrences(words: dict[str, str], paths: list[Path]) -> list[str]:
    patterns = {re.compile(rf"\b(?:{old})\b", re.IGNORECASE): new for old, new in words.items()}
    # Few files have such a word at all, and only those are read line by line.
    every = re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)
    return [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; write {new}"
        for path in paths
        if every.search(text_of(path))
        for number, line in prose(path)
        for pattern, new in patterns.items()
        for match in pattern.finditer(line)
    ]


@pytest.mark.parametrize("words", [ODD, OLD], ids=["odd phrases", "old words"])
def test_old_words_do_not_come_back(words):
    assert occurrences(words, [*sources(), *pages()]) == []


def test_the_desk_is_that_of_the_demo():
    package = [path for path in sources() if path.is_relative_to(ROOT / "mcp_django")]
    assert occurrences(DESK, package) == []


def variables(path: Path, names: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.Name | ast.arg):
            name = node.id if isinstance(node, ast.Name) else node.arg
            if name in names:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {name}"


@pytest.mark.parametrize("folder", [*CODE, "tests"])
def test_variables_are_named_for_what_they_hold(folder):
    vague = [
        variable
        for path in sorted((ROOT / folder).rglob("*.py"))
        for variable in variables(path, VAGUE - MEANT.get(str(path.relative_to(ROOT)), set()))
    ]
    assert vague == []


def test_each_vague_name_that_is_meant_is_in_use():
    for file, names in MEANT.items():
        used = {variable.rpartition(" ")[2] for variable in variables(ROOT / file, VAGUE)}
        assert used == names, file


@pytest.mark.parametrize(
    "variable",
    ["{% for one in rows %}", "{{ found.name }}", "{% include page with item=row %}"],
)
def test_vague_variables_of_templates_are_seen(variable):
    assert VAGUE_IN_TEMPLATES.search(variable)


def test_variables_of_templates_are_named_for_what_they_hold():
    templates = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.html"))]
    assert len(templates) > 40
    vague = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in templates
        for match in VAGUE_IN_TEMPLATES.finditer(text_of(path))
    ]
    assert vague == []


def test_no_name_in_the_code_is_an_old_word():
    names = [
        f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}"
        for path in sources()
        if OLD_WORDS.search(text_of(path))
        for token in tokens(path)
        if token.type == tokenize.NAME and OLD_NAMES.search(token.string)
    ]
    assert names == []


def test_what_a_docstring_says_is_raised_exists():
    raised = re.compile(r"^ +Raises:\n((?:^ +\S.*\n)+)", re.MULTILINE)
    package = [path for path in sources() if path.is_relative_to(ROOT / "mcp_django")]
    names = {
        name: path
        for path in package
        for section in raised.findall(text_of(path))
        for name in re.findall(r"^ {4,}([A-Z]\w+):", section, re.MULTILINE)
        if not hasattr(builtins, name)
    }
    for name, path in names.items():
        # Where it is imported or defined comes first, so that few files are read word by word.
        lines = re.compile(rf"^ *(?:class|from|import) .*\b{name}\b|^ +{name},$", re.MULTILINE)
        in_text = [other for other in package if name in text_of(other)]
        in_text.sort(key=lambda other: not lines.search(text_of(other)))
        every = (token for other in in_text for token in tokens(other))
        is_known = any(token.string == name for token in every if token.type == tokenize.NAME)
        assert is_known, f"{path.relative_to(ROOT)}: {name}"


def test_readers_meet_no_ids_of_requirements():
    ids = {*requirements()}
    seen = [
        f"{path.relative_to(ROOT)}:{number}: {name}"
        for path in [*sources(), *pages()]
        if not ids.isdisjoint(IDS.findall(text_of(path)))
        for number, line in prose(path)
        for name in IDS.findall(line)
        if name in ids
    ]
    # CONTRIBUTING.md shows how a test names them.
    assert [mention for mention in seen if not mention.startswith("CONTRIBUTING.md")] == []


def test_prose_is_comments_and_texts_and_not_code(tmp_path):
    path = tmp_path / "one.py"
    path.write_text('lane = "lane"  # the lane\n"""A door\nof the hall."""\n')
    assert [*prose(path)] == [(1, "# the lane"), (2, '"""A door'), (3, 'of the hall."""')]


@pytest.mark.parametrize(
    ("line", "is_odd"),
    [
        ("# whoever asks", True),
        ("# it is no list", True),
        ("# there is no list", False),
        ("# it is no longer valid", False),
        ("# give it back", False),
        ("# she gives back the row", True),
        ("# the request was canceled", True),
    ],
)
def test_odd_phrases_are_told_from_plain_ones(line, is_odd):
    assert any(re.search(rf"\b(?:{odd})\b", line) for odd in ODD) is is_odd


@pytest.mark.parametrize(
    ("name", "is_old"), [("open_lane", True), ("_Muster", True), ("planet", False), ("ring", False)]
)
def test_old_names_are_whole_words(name, is_old):
    assert bool(OLD_NAMES.search(name)) is is_old
