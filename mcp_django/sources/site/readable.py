"""HTML as text that a model reads with ease, in the manner of Markdown.

Headings, lists, tables and links stay; scripts, styles, what is hidden, and the controls of forms
(and so their tokens) go, with the characters that no font draws: text for models alone is an
attack. Nothing is fetched. Takes time linear in the page, however broken.
"""

from __future__ import annotations

import re
from collections import Counter
from urllib.parse import urlsplit

from mcp_django.sources.site.markup import EndTag, StartTag, pieces
from mcp_django.sources.site.writing import Writer


def _tags(names: str) -> frozenset[str]:
    return frozenset(names.split())


VOID = _tags("area base br col embed hr img input link meta param source track wbr")
DROPPED = _tags(
    "script style template noscript noembed noframes svg math iframe object audio video canvas "
    "select button datalist dialog head"
)
BLOCKS = _tags(
    "address article aside blockquote body dd details div dl dt fieldset figcaption figure footer "
    "form header hgroup html legend main nav p section summary textarea"
)
HEADINGS = {f"h{level}": level for level in range(1, 7)}
# What ends an element that nobody has to end (HTML, section 13.1.2.4), where it is the innermost.
CLOSED_BY = {
    "p": BLOCKS | HEADINGS.keys() | {"ul", "ol", "table", "pre", "hr", "li"},
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "td": frozenset({"td", "th", "tr", "tbody", "tfoot"}),
    "th": frozenset({"td", "th", "tr", "tbody", "tfoot"}),
    "tr": frozenset({"tr", "tbody", "tfoot"}),
    "head": BLOCKS | HEADINGS.keys() | {"ul", "ol", "table", "pre"},
}
# The plane of tags, by which text is written that nobody sees.
UNSEEN = re.compile("[\U000e0000-\U000e0fff\0]")
UNSEEN_STYLES = re.compile(
    r"(?:^|;)(?:display:none|visibility:(?:hidden|collapse)|content-visibility:hidden"
    r"|opacity:0*\.?0*%?|font-size:0*\.?0*[a-z%]*)(?:!important)?(?=;|$)"
)
_CSS_NOISE = re.compile(r"/\*.*?(?:\*/|$)|\s+", re.DOTALL)


def readable(html: str) -> str:
    """The text of a page, with its title first when no heading says it."""
    reader = _Reader()
    for piece in pieces(html):
        if isinstance(piece, StartTag):
            reader.start(piece.name, piece.attributes)
        elif isinstance(piece, EndTag):
            reader.end(piece.name)
        else:
            reader.text(piece)
    return UNSEEN.sub("", reader.result())


class _Reader:
    def __init__(self) -> None:
        self._writer = Writer()
        self._open: list[tuple[str, bool]] = []
        self._counts: Counter[str] = Counter()
        self._hidden = 0
        self._links: list[str] = []
        self._title: list[str] = []

    def result(self) -> str:
        text = self._writer.result()
        title = " ".join("".join(self._title).split())
        if title and not text.startswith("# ") and "\n# " not in text:
            text = f"# {title}\n\n{text}".strip()
        return text

    def start(self, tag: str, given: dict[str, str]) -> None:
        while self._open and tag in CLOSED_BY.get(self._open[-1][0], ()):
            self._leave(self._open[-1][0])
        if tag in VOID:
            if not self._hidden:
                self._void(tag, given)
            return
        hides = tag in DROPPED or _is_hidden(given)
        self._open.append((tag, hides))
        self._counts[tag] += 1
        self._hidden += hides
        if not self._hidden:
            self._start(tag, given)

    def end(self, tag: str) -> None:
        if not self._counts[tag]:
            return
        while self._counts[tag]:
            inner = self._open[-1][0]
            self._leave(inner)
            if inner == tag:
                return

    def text(self, data: str) -> None:
        if self._open and self._open[-1][0] == "title":
            # A picture has a title, too.
            self._title.append("" if self._counts["svg"] else data)
        elif not self._hidden:
            # No character of a page; the writer breaks lines with it.
            self._writer.text(data.replace("\0", ""))

    def _leave(self, tag: str) -> None:
        _, hides = self._open.pop()
        self._counts[tag] -= 1
        if not self._hidden:
            self._end(tag)
        self._hidden -= hides

    def _void(self, tag: str, given: dict[str, str]) -> None:
        if tag == "br":
            self._writer.line_break()
        elif tag == "hr":
            self._writer.rule()
        elif tag == "img" and given.get("alt"):
            self.text(f" {given['alt']} ")

    def _start(self, tag: str, given: dict[str, str]) -> None:
        writer = self._writer
        if tag == "a":
            self._links.append(_address(given.get("href", "")))
            writer.text("[" if self._links[-1] else "")
        elif tag in HEADINGS:
            writer.heading(HEADINGS[tag])
        elif tag in {"ul", "ol"}:
            writer.begin_list(is_ordered=tag == "ol")
        elif tag == "li":
            writer.item()
        elif tag == "pre":
            writer.begin_code()
        elif tag == "table":
            writer.begin_table()
        elif tag == "tr":
            writer.row()
        elif tag in {"td", "th"}:
            writer.cell()
        elif tag in BLOCKS:
            writer.block()

    def _end(self, tag: str) -> None:
        writer = self._writer
        if tag == "a":
            address = self._links.pop() if self._links else ""
            writer.text(f"]({address})" if address else "")
        elif tag in {"ul", "ol"}:
            writer.end_list()
        elif tag == "pre":
            writer.end_code()
        elif tag == "table":
            writer.end_table()
        elif tag in {"td", "th"}:
            writer.end_cell()
        elif tag == "caption":
            writer.caption()
        elif tag in BLOCKS or tag in HEADINGS or tag == "li":
            writer.block()


def _is_hidden(given: dict[str, str]) -> bool:
    style = _CSS_NOISE.sub("", given.get("style", "")).lower()
    return (
        "hidden" in given
        or given.get("aria-hidden", "").strip().lower() == "true"
        or UNSEEN_STYLES.search(style) is not None
    )


def _address(href: str) -> str:
    """The target of a link, unless it is within the page or no address at all."""
    text = href.strip()
    try:
        scheme = urlsplit(text).scheme.lower()
    except ValueError:
        return ""
    if not text or text.startswith("#") or scheme not in {"", "http", "https", "mailto", "tel"}:
        return ""
    return text.replace(" ", "%20").replace(")", "%29")
