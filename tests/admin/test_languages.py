"""No page mixes languages: what it shows is translated, or data of the site."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest
from django.urls import reverse
from django.utils import translation

from tests.admin.every import make_rows, models, pages
from tests.kit.servers import person
from tests.repository.test_translations import messages

pytestmark = pytest.mark.django_db

VOID = {"br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
CODE = {"code", "pre", "script", "style", "svg", "textarea"}
SHOWN_ATTRIBUTES = re.compile(r"title|aria-label|placeholder|alt|label|data-.*-label")
WORD = re.compile(r"[A-Za-z]{2}")
# Where a text begins and ends; every translated text stands between them.
BEGIN, END = "⟦", "⟧"
MARKED = re.compile(f"{BEGIN}[^{BEGIN}{END}]*{END}")

DATA = re.compile(
    r"""
    \W* (?:
      # The rows of ``make_rows``, and what code declares.
      (?:shelf|open|default|gated|staff|desk|root|robot|script|note|noting|crm|look|clear|about|book|recommend)
    | (?:mcp|anonymous|user:\d+|tests(?:\.[\w.]+)?|AllowAny|Look|The\ shelf|u-1|None)
    | (?:Look\ at\ the\ shelf\ <b>closely</b>\.|Clear\ the\ shelf\.|A\ book\.|Note\ it\.)
    | (?:What\ stands\ there\.|Recommend\ a\ book\.|Ask\ before\ you\ take\.|What\ was\ bought\.)
    | (?:mcp|shelf:\w+):\ .*                       # scopes, with the descriptions of the settings
    | shelf:\w+ | shelf://\S* | \w+\.example | mcp_… .* | …[\w-]+
    | https?://\S+(?:\ Staff\ desk)? | root:\ robot,?
    # Fields and models of the site.
    | (?:id|name|user|permissions|username|codename)(?:__\w+)?
    | (?:category|customer|ledger|passport|product|remark|tag|voucher|wallet|Shop)
    | (?:open\ |special\ )?order(?:\ line)?
    | [\w.]+\.\w+:\ Can\ .*                          # a permission, as Django names it
    | [\w.:]+\.\w+ | admin:index | [\w]+:\w+
    | (?:\d{4}-\d\d-\d\d|DRAFT-2026-v1|UTC|Streamable\ HTTP|HTTP\+SSE|Django\ OAuth\ Toolkit)
    | (?:Access|Refresh|Id)\ tokens | Applications | Grants | Device\ grants
    | \d\d:\d\d:\d\d[\d.]*\ UTC | (?:note|noting)\ \d | ID
    | (?:False|True|Search)                          # pictures of Django's
    | (?:text|whole\ number|number|yes\ or\ no|date) # the types that a query parameter names
    ) \W*
    """,
    re.VERBOSE,
)


class Shown(HTMLParser):
    """What a page shows: its texts, and the attributes that are read to the user."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        # The elements that are open, and whether they or one around them are left out.
        self._open: list[tuple[str, bool]] = []
        self._parts: list[str] = []
        self.attributes: list[str] = []
        self.feed(response.content.decode())
        self.text = "".join(self._parts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if not self._is_left_out:
            self.attributes += [v for k, v in given.items() if SHOWN_ATTRIBUTES.fullmatch(k)]
            if given.get("type") in ("submit", "button"):
                self.attributes.append(given.get("value", ""))
        if tag not in VOID:
            is_data = tag in CODE or given.get("translate") == "no"
            is_hidden = "hidden" in given.get("class", "").split()
            self._open.append((tag, self._is_left_out or is_data or is_hidden))
        self._parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass
        self._parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._is_left_out:
            self._parts.append(data)

    @property
    def _is_left_out(self) -> bool:
        return bool(self._open) and self._open[-1][1]

    def lines(self) -> list[str]:
        return [line.strip() for line in self.text.split("\n") if line.strip()]


@pytest.fixture
def every_page(sign_in):
    """Returns what each page of ours shows to a superuser, in the language that is active."""
    user = person("root", is_staff=True, is_superuser=True)
    client = sign_in(user)
    rows = make_rows(user)
    addresses = {
        f"{model.__name__} {name}": address
        for model in models()
        for name, address in pages(model, rows[model].pk)
    }
    addresses["front page"] = reverse("admin:app_list", args=["mcp_django"])
    addresses["index"] = reverse("admin:index")

    def look() -> dict[str, Shown]:
        page_texts = {}
        for name, address in addresses.items():
            answer = client.get(address)
            is_page = answer.status_code == 200 and "html" in answer.headers["content-type"]
            if is_page:
                page_texts[name] = Shown(answer)
        assert len(page_texts) > 70
        return page_texts

    return look


def unmarked(text: str) -> str:
    while MARKED.search(text):
        text = MARKED.sub("", text)
    return text


def test_every_text_that_is_shown_is_translated(every_page, monkeypatch):
    def mark(text: str) -> str:
        return f"{BEGIN}{text}{END}" if text else text

    real = translation._trans
    monkeypatch.setattr(real, "gettext", mark, raising=False)
    monkeypatch.setattr(real, "pgettext", lambda context, text: mark(text), raising=False)
    monkeypatch.setattr(real, "ngettext", lambda singular, plural, n: mark(plural), raising=False)
    monkeypatch.setattr(
        real, "npgettext", lambda c, singular, plural, n: mark(plural), raising=False
    )
    untranslated: dict[str, str] = {}
    for name, shown in every_page().items():
        lines = unmarked(shown.text).split("\n")
        for line in [*lines, *map(unmarked, shown.attributes)]:
            for part in re.split(r"[|\u203a·,()]", line):
                if WORD.search(part) and not DATA.fullmatch(part.strip()):
                    untranslated.setdefault(part.strip(), name)
    assert untranslated == {}


@cache
def english_texts(language: str) -> dict[str, str]:
    """The texts of three words and more, which are not the same by chance, translated."""
    texts = {str(message.id): str(message.string) for message in messages(language)}
    return {en: text for en, text in texts.items() if en != text and len(en.split()) > 2}


@pytest.mark.parametrize("language", ["de", "es", "fr"])
def test_a_page_is_in_one_language(every_page, settings, language):
    settings.LANGUAGE_CODE = language
    english = english_texts(language)
    with translation.override(language):
        page_texts = every_page()
    for name, shown in page_texts.items():
        mixed = [line for line in [*shown.lines(), *shown.attributes] if line in english]
        assert not mixed, (name, mixed)
    # Some page has each of them.
    all_text = "\n".join(line for shown in page_texts.values() for line in shown.lines())
    assert sum(text in all_text for text in english.values()) > 100
