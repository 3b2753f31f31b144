"""Every text of the package is in the catalogs that it ships, translated and compiled."""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.utils.translation.template import templatize

import mcp_django

pytest.importorskip("babel", reason="Babel reads the catalogs; it comes with the extra [test]")

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_file
from babel.messages.pofile import read_po

PACKAGE = Path(mcp_django.__file__).parent
LANGUAGES = ["de", "es", "fr"]
KEYWORDS = {
    **DEFAULT_KEYWORDS,
    "gettext_lazy": None,
    "ngettext_lazy": (1, 2),
    "npgettext": ((1, "c"), 2, 3),
    "npgettext_lazy": ((1, "c"), 2, 3),
    "pgettext_lazy": ((1, "c"), 2),
}
# The calls into which `templatize` turns the tags of a template.
CALL = re.compile(r"\b(n?p?)gettext\(((?:\s*u?'(?:[^'\\]|\\.)*',?|\s*u?\"(?:[^\"\\]|\\.)*\",?)+)")
# Without one of these names before a parenthesis, there is no text to extract from code.
ANY_CALL = re.compile(rf"\b(?:{'|'.join(KEYWORDS)})\s*\(")
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%%|\{\w*\}|</?\w+[^>]*>")

Text = tuple[str | None, str | tuple[str, ...]]
"""The context of a text, and the text itself, or its singular and plural."""


def in_python(path: Path) -> Iterator[Text]:
    if not ANY_CALL.search(path.read_text()):
        return
    for _, message, _, context in extract_from_file("python", path, keywords=KEYWORDS):
        texts = (message,) if isinstance(message, str) else tuple(filter(None, message))
        yield context, texts if len(texts) > 1 else texts[0]


def in_template(path: Path) -> Iterator[Text]:
    for kind, given in CALL.findall(templatize(path.read_text())):
        texts = list(ast.literal_eval(f"({given.rstrip(',')},)"))
        context = texts.pop(0) if "p" in kind else None
        yield context, tuple(texts) if "n" in kind else texts[0]


@cache
def in_package() -> frozenset[Text]:
    """Return the texts that code and templates translate."""
    texts = {text for path in PACKAGE.rglob("*.py") for text in in_python(path)}
    for path in PACKAGE.rglob("*.html"):
        texts.update(in_template(path))
    return frozenset(texts)


@cache
def catalog(language: str) -> Catalog:
    with (PACKAGE / "locale" / language / "LC_MESSAGES" / "django.po").open("rb") as file:
        return read_po(file, locale=language)


def messages(language: str) -> list[Message]:
    return [message for message in catalog(language) if message.id]


def test_the_extraction_finds_texts_of_each_kind():
    texts = in_package()
    assert len(texts) > 1000
    for text in (
        (None, "Try it"),
        (None, "last seen"),
        (None, ("%(n)s call", "%(n)s calls")),
        ("place of a file", "project"),
        (None, "The URL of this server:"),
    ):
        assert text in texts


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_catalog_holds_every_text_and_no_other(language):
    held = {(message.context, message.id) for message in messages(language)}
    missing = sorted(map(str, in_package() - held))
    assert not missing, "Run django-admin makemessages in mcp_django/; it lacks these"
    assert not sorted(map(str, held - in_package()))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated(language):
    # `makemessages` leaves these comments after a guess; gettext cannot always read them.
    assert "\n#|" not in (PACKAGE / "locale" / language / "LC_MESSAGES" / "django.po").read_text()
    for message in messages(language):
        assert "fuzzy" not in message.flags, message.id
        texts = message.string if isinstance(message.string, tuple) else (message.string,)
        assert all(texts), message.id
        ids: tuple[str, ...] = message.id if isinstance(message.id, tuple) else (message.id,)
        for english, text in zip(ids, texts, strict=True):
            known = set(PLACEHOLDER.findall(english))
            assert known == set(PLACEHOLDER.findall(text)), (english, text)
            assert english[:1].isspace() == text[:1].isspace(), english
            assert english.count("\n") == text.count("\n"), english


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_catalog_is_that_of_the_texts(language):
    with (PACKAGE / "locale" / language / "LC_MESSAGES" / "django.mo").open("rb") as file:
        compiled: dict[Any, str] = gettext.GNUTranslations(file)._catalog
    expected: dict[Any, str] = {}
    for message in messages(language):
        begin = f"{message.context}\x04" if message.context else ""
        if isinstance(message.id, tuple):
            forms = {(begin + message.id[0], n): text for n, text in enumerate(message.string)}
            expected.update(forms)
        else:
            expected[begin + message.id] = message.string
    compiled.pop("", None)
    assert compiled == expected, "Run django-admin compilemessages in mcp_django/"


def test_every_text_is_written_where_it_is_translated():
    """The extraction reads calls with a text, and no others."""
    paths = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if "django.utils.translation" not in text:
            continue
        nodes = [*ast.walk(ast.parse(text))]
        imported = {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation"
            for alias in node.names
            if alias.name in KEYWORDS
        }
        called = {
            id(node.func)
            for node in nodes
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
        }
        paths += [
            path.relative_to(PACKAGE).as_posix()
            for node in nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            if node.id in imported and id(node) not in called
        ]
    # Labels that the history stores, which are texts of the models; and a text of Django's.
    assert sorted(paths) == ["admin_base.py", "integrations/model_admin.py"]
