"""HTML as tags and text, cut apart as a browser does (HTML, section 13.2.5).

The standard library's parser takes quadratic time for some broken pages and fails for others,
depending on its release. This one looks at each character a fixed number of times, and knows no
page that it cannot read: what is broken ends where a browser ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape

# Nothing in them is a tag; in the latter, character references count all the same.
RAW = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes", "noscript"})
ESCAPABLE = frozenset({"textarea", "title"})
# The only elements that a page can close in their own tag.
FOREIGN = frozenset({"svg", "math"})

_TAG_NAME = re.compile(r"[^ \t\n\r\f/>]+")
_BETWEEN = re.compile(r"[ \t\n\r\f/]*")
_ATTRIBUTE = re.compile(r"=?[^ \t\n\r\f/>=]*")
_EQUALS = re.compile(r"[ \t\n\r\f]*=[ \t\n\r\f]*")
_UNQUOTED = re.compile(r"[^ \t\n\r\f>]*")
_COMMENT_END = re.compile(r"--!?>")
_LETTER = re.compile(r"[A-Za-z]")
# Python refuses to read numbers of so many digits.
_HUGE_REFERENCE = re.compile(r"&#[0-9]{8,};?")


@dataclass(frozen=True, slots=True)
class StartTag:
    """``<a href="x">``; of two attributes of one name the first counts."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndTag:
    """``</a>``."""

    name: str


Piece = StartTag | EndTag | str


def pieces(html: str) -> Iterator[Piece]:
    """The tags of a page and the texts between them."""
    position = 0
    while (opening := html.find("<", position)) >= 0:
        if opening > position:
            yield text_of(html[position:opening])
        position, found = _markup(html, opening)
        if found is None:
            continue
        yield found
        if isinstance(found, StartTag) and found.name in RAW | ESCAPABLE:
            end = _end_of_raw(html, found.name, position)
            raw = html[position:end]
            if raw:
                yield raw if found.name in RAW else text_of(raw)
            position = end
    if position < len(html):
        yield text_of(html[position:])


def plain(html: str) -> str:
    """Markup of the site's own as the text in it."""
    return "".join(piece for piece in pieces(html) if isinstance(piece, str))


def text_of(raw: str) -> str:
    """Text with its character references resolved."""
    return unescape(_HUGE_REFERENCE.sub("\ufffd", raw))


def _markup(html: str, opening: int) -> tuple[int, Piece | None]:
    """What stands at a ``<``, and where it ends; ``None`` for what nobody sees."""
    following = html[opening + 1 : opening + 3]
    if _LETTER.match(following):
        return _tag(html, opening + 1, is_end=False)
    if following[:1] == "/" and _LETTER.match(following[1:]):
        return _tag(html, opening + 2, is_end=True)
    if html.startswith("<!--", opening):
        return _comment(html, opening + 4), None
    if following[:1] in {"!", "?"} or (following[:1] == "/" and following[1:]):
        # A doctype, an instruction, a section of CDATA, an end of nothing.
        end = html.find(">", opening)
        return (end + 1 if end >= 0 else len(html)), None
    return opening + 1, "<"


def _comment(html: str, start: int) -> int:
    for short in (">", "->"):
        if html.startswith(short, start):
            return start + len(short)
    found = _COMMENT_END.search(html, start)
    return found.end() if found else len(html)


def _tag(html: str, start: int, *, is_end: bool) -> tuple[int, Piece | None]:
    """A tag from its name on; one that the page ends in is none."""
    name = _TAG_NAME.match(html, start)
    assert name is not None
    position = name.end()
    attributes: dict[str, str] = {}
    while True:
        position = _after(_BETWEEN, html, position)
        if position >= len(html):
            return position, None
        if html[position] == ">":
            break
        end = _after(_ATTRIBUTE, html, position)
        key = html[position:end].lower()
        position, value = _value(html, end)
        attributes.setdefault(key, value)
    kind = name.group().lower()
    if kind in FOREIGN and html[position - 1] == "/":
        return position + 1, None
    return position + 1, EndTag(kind) if is_end else StartTag(kind, attributes)


def _value(html: str, position: int) -> tuple[int, str]:
    """The value of an attribute behind its name, and where it ends."""
    equals = _EQUALS.match(html, position)
    if equals is None:
        return position, ""
    position = equals.end()
    quote = html[position : position + 1]
    if quote in {'"', "'"}:
        end = html.find(quote, position + 1)
        if end < 0:
            return len(html), ""
        return end + 1, text_of(html[position + 1 : end])
    end = _after(_UNQUOTED, html, position)
    return end, text_of(html[position:end])


def _after(pattern: re.Pattern[str], html: str, position: int) -> int:
    found = pattern.match(html, position)
    return found.end() if found else position


def _end_of_raw(html: str, name: str, start: int) -> int:
    """Where the end tag begins that alone ends an element of this name."""
    found = re.compile(rf"</{name}(?=[ \t\n\r\f/>])", re.IGNORECASE).search(html, start)
    return found.start() if found else len(html)
