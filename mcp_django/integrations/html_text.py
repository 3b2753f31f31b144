"""Convert HTML to Markdown-like text that is easy for a model to read.

HTML is split into tags and text as in a browser (HTML, section 13.2.5). The parser of the
standard library takes quadratic time for some malformed pages and fails for others, depending on
the Python release. This parser looks at each character a fixed number of times and accepts every
page: malformed markup ends where a browser ends it. The conversion takes time linear in the size
of the page. Nothing is fetched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import urlsplit

# Elements whose content has no tags; in those of ESCAPABLE, character references are resolved.
RAW = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes", "noscript"})
ESCAPABLE = frozenset({"textarea", "title"})
# The only elements that can be self-closing.
FOREIGN = frozenset({"svg", "math"})

_TAG_NAME = re.compile(r"[^ \t\n\r\f/>]+")
_BETWEEN = re.compile(r"[ \t\n\r\f/]*")
_ATTRIBUTE = re.compile(r"=?[^ \t\n\r\f/>=]*")
_EQUALS = re.compile(r"[ \t\n\r\f]*=[ \t\n\r\f]*")
_UNQUOTED = re.compile(r"[^ \t\n\r\f>]*")
_COMMENT_END = re.compile(r"--!?>")
_LETTER = re.compile(r"[A-Za-z]")
# html.unescape() fails for numbers of several thousand digits, because int() rejects them.
_HUGE_REFERENCE = re.compile(r"&#[0-9]{8,};?")


@dataclass(frozen=True, slots=True)
class StartTag:
    """A start tag such as ``<a href="x">``; the first of two attributes of one name is kept."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndTag:
    """An end tag such as ``</a>``."""

    name: str


Token = StartTag | EndTag | str


def split_html(html: str) -> Iterator[Token]:
    """Yield the tags of a page and the texts between them."""
    position = 0
    while (opening := html.find("<", position)) >= 0:
        if opening > position:
            yield _unescape(html[position:opening])
        position, token = _read_markup(html, opening)
        if token is None:
            continue
        yield token
        if isinstance(token, StartTag) and token.name in RAW | ESCAPABLE:
            # No other tag ends the element.
            end_tag = re.compile(rf"</{token.name}(?=[ \t\n\r\f/>])", re.IGNORECASE)
            match = end_tag.search(html, position)
            end = match.start() if match else len(html)
            raw = html[position:end]
            if raw:
                yield raw if token.name in RAW else _unescape(raw)
            position = end
    if position < len(html):
        yield _unescape(html[position:])


def strip_markup(html: str) -> str:
    """Return the text of an HTML fragment of the site, without its tags."""
    return "".join(piece for piece in split_html(html) if isinstance(piece, str))


def _unescape(raw: str) -> str:
    """Return the text with its character references resolved."""
    return unescape(_HUGE_REFERENCE.sub("\ufffd", raw))


def _read_markup(html: str, opening: int) -> tuple[int, Token | None]:
    """Return where the markup at a ``<`` ends, and its token; ``None`` if it is not rendered."""
    following = html[opening + 1 : opening + 3]
    if _LETTER.match(following):
        return _read_tag(html, opening + 1, is_end=False)
    if following[:1] == "/" and _LETTER.match(following[1:]):
        return _read_tag(html, opening + 2, is_end=True)
    if html.startswith("<!--", opening):
        start = opening + 4
        for short in (">", "->"):
            if html.startswith(short, start):
                return start + len(short), None
        match = _COMMENT_END.search(html, start)
        return (match.end() if match else len(html)), None
    if following[:1] in {"!", "?"} or (following[:1] == "/" and following[1:]):
        # A doctype, a processing instruction, a CDATA section or an end tag without a name.
        end = html.find(">", opening)
        return (end + 1 if end >= 0 else len(html)), None
    return opening + 1, "<"


def _read_tag(html: str, start: int, *, is_end: bool) -> tuple[int, Token | None]:
    """Return where a tag ends, and the tag; ``None`` for an unfinished or self-closing tag."""
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
        position, value = _read_attribute_value(html, end)
        attributes.setdefault(key, value)
    kind = name.group().lower()
    if kind in FOREIGN and html[position - 1] == "/":
        return position + 1, None
    return position + 1, EndTag(kind) if is_end else StartTag(kind, attributes)


def _read_attribute_value(html: str, position: int) -> tuple[int, str]:
    """Return where the value after an attribute's name ends, and the value."""
    equals = _EQUALS.match(html, position)
    if equals is None:
        return position, ""
    position = equals.end()
    quote = html[position : position + 1]
    if quote in {'"', "'"}:
        end = html.find(quote, position + 1)
        if end < 0:
            return len(html), ""
        return end + 1, _unescape(html[position + 1 : end])
    end = _after(_UNQUOTED, html, position)
    return end, _unescape(html[position:end])


def _after(pattern: re.Pattern[str], html: str, position: int) -> int:
    match = pattern.match(html, position)
    return match.end() if match else position


# From HTML to text --------------------------------------------------------------------------------

# Headings, lists, tables and links are kept. Scripts, styles, hidden elements and form controls
# (and so CSRF tokens) are removed, and so are invisible characters: text that only models can
# read is used for attacks.


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
# The tags that end an element whose end tag is optional (HTML, section 13.1.2.4), if that element
# is the innermost one.
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
# The Unicode range of the tag characters, with which invisible text can be written.
INVISIBLE_CHARACTERS = re.compile("[\U000e0000-\U000e0fff\0]")
HIDING_STYLES = re.compile(
    r"(?:^|;)(?:display:none|visibility:(?:hidden|collapse)|content-visibility:hidden"
    r"|opacity:0*\.?0*%?|font-size:0*\.?0*[a-z%]*)(?:!important)?(?=;|$)"
)
_CSS_NOISE = re.compile(r"/\*.*?(?:\*/|$)|\s+", re.DOTALL)


def html_to_text(html: str) -> str:
    """Return the text of a page; its title comes first if there is no first-level heading."""
    reader = _TextExtractor()
    for piece in split_html(html):
        if isinstance(piece, StartTag):
            reader.start(piece.name, piece.attributes)
        elif isinstance(piece, EndTag):
            reader.end(piece.name)
        else:
            reader.text(piece)
    return INVISIBLE_CHARACTERS.sub("", reader.result())


class _TextExtractor:
    def __init__(self) -> None:
        self._writer = MarkdownWriter()
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

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        while self._open and tag in CLOSED_BY.get(self._open[-1][0], ()):
            self._close_element(self._open[-1][0])
        if tag in VOID:
            if self._hidden:
                return
            if tag == "br":
                self._writer.line_break()
            elif tag == "hr":
                self._writer.rule()
            elif tag == "img" and attributes.get("alt"):
                self.text(f" {attributes['alt']} ")
            return
        hides = tag in DROPPED or _is_hidden(attributes)
        self._open.append((tag, hides))
        self._counts[tag] += 1
        self._hidden += hides
        if not self._hidden:
            self._start(tag, attributes)

    def end(self, tag: str) -> None:
        if not self._counts[tag]:
            return
        while self._counts[tag]:
            inner = self._open[-1][0]
            self._close_element(inner)
            if inner == tag:
                return

    def text(self, text: str) -> None:
        if self._open and self._open[-1][0] == "title":
            # An SVG image can have a title, too.
            self._title.append("" if self._counts["svg"] else text)
        elif not self._hidden:
            # NUL is not allowed in HTML, and the writer uses it for line breaks.
            self._writer.text(text.replace("\0", ""))

    def _close_element(self, tag: str) -> None:
        _, hides = self._open.pop()
        self._counts[tag] -= 1
        if not self._hidden:
            self._end(tag)
        self._hidden -= hides

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "a":
            self._links.append(_link_target(attributes.get("href", "")))
            self._writer.text("[" if self._links[-1] else "")
        elif tag in HEADINGS:
            self._writer.heading(HEADINGS[tag])
        elif tag in {"ul", "ol"}:
            self._writer.begin_list(is_ordered=tag == "ol")
        elif tag in _STARTS:
            _STARTS[tag](self._writer)

    def _end(self, tag: str) -> None:
        if tag == "a":
            address = self._links.pop() if self._links else ""
            self._writer.text(f"]({address})" if address else "")
        elif tag in _ENDS:
            _ENDS[tag](self._writer)


def _is_hidden(attributes: dict[str, str]) -> bool:
    if not attributes:
        return False
    style = _CSS_NOISE.sub("", attributes.get("style", "")).lower()
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden", "").strip().lower() == "true"
        or HIDING_STYLES.search(style) is not None
    )


def _link_target(href: str) -> str:
    """Return the target of a link; empty if it is in the same page or is not a web address."""
    text = href.strip()
    try:
        scheme = urlsplit(text).scheme.lower()
    except ValueError:
        return ""
    if not text or text.startswith("#") or scheme not in {"", "http", "https", "mailto", "tel"}:
        return ""
    return text.replace(" ", "%20").replace(")", "%29")


# Blocks of text -----------------------------------------------------------------------------------

MAX_INDENT = 8


@dataclass(slots=True)
class _List:
    is_ordered: bool
    number: int = 0


@dataclass(slots=True)
class MarkdownWriter:
    """Builds the text from blocks: paragraphs, headings, list items, table rows and code.

    Each row of a table is one line.
    """

    _blocks: list[tuple[str, str]] = field(default_factory=list)
    _pieces: list[str] = field(default_factory=list)
    _kind: str = ""
    _prefix: str = ""
    _lists: list[_List] = field(default_factory=list)
    _list_number: int = 0
    """The number of the current outermost list."""
    _is_code: bool = False
    _table_depth: int = 0
    """The nesting depth of tables."""
    _table_number: int = 0
    """The number of the current outermost table."""
    _cells: list[str] = field(default_factory=list)
    _rows: int = 0

    def result(self) -> str:
        """Return the whole text; blocks of one list or table have no blank line between them."""
        self._table_depth = 0
        self.end_code()
        self.block()
        text: list[str] = []
        before = ""
        for kind, block in self._blocks:
            if text:
                text.append("\n" if kind and kind == before else "\n\n")
            text.append(block)
            before = kind
        return "".join(text)

    def text(self, text: str) -> None:
        """Add text to the block."""
        self._pieces.append(text)

    def line_break(self) -> None:
        """Start a new line in the same block."""
        self._pieces.append("\n" if self._is_code else " \0 ")

    def block(self) -> None:
        """End the current block, if it is not empty."""
        if self._is_code:
            return
        if self._table_depth:
            self._pieces.append(" ")
            return
        self._end()

    def rule(self) -> None:
        """Add a horizontal rule."""
        self.block()
        if not self._table_depth and not self._is_code:
            self._blocks.append(("", "---"))

    def heading(self, level: int) -> None:
        """Start a heading."""
        self.block()
        if not self._table_depth:
            self._prefix = f"{'#' * level} "

    def begin_list(self, *, is_ordered: bool) -> None:
        """Start a list, which may be nested in another one."""
        self.block()
        if not self._lists:
            self._list_number += 1
        self._lists.append(_List(is_ordered))

    def end_list(self) -> None:
        """End the innermost list."""
        self.block()
        if self._lists:
            self._lists.pop()

    def item(self) -> None:
        """Start a list item; an item outside of a list gets a bullet, too."""
        self.block()
        bullet = "-"
        if self._lists and self._lists[-1].is_ordered:
            self._lists[-1].number += 1
            bullet = f"{self._lists[-1].number}."
        if self._table_depth:
            return
        indent = "  " * min(max(len(self._lists) - 1, 0), MAX_INDENT)
        self._kind, self._prefix = f"item of {self._list_number}", f"{indent}{bullet} "

    def begin_code(self) -> None:
        """Start preformatted text, in which spaces and line ends are kept."""
        self.block()
        if not self._table_depth:
            self._is_code = True

    def end_code(self) -> None:
        """End preformatted text."""
        if not self._is_code:
            return
        self._is_code = False
        text = "".join(self._pieces).strip("\n").replace("\0", "")
        self._pieces.clear()
        if text.strip():
            self._blocks.append(("", f"```\n{text}\n```"))

    def begin_table(self) -> None:
        """Start a table; a nested table becomes text in the cell of the outer one."""
        self.block()
        self._table_depth += 1
        if self._table_depth == 1:
            self._cells, self._rows = [], 0
            self._table_number += 1

    def caption(self) -> None:
        """End the caption of a table."""
        if self._table_depth == 1 and (text := self._take_text()):
            self._blocks.append(("", text))

    def row(self) -> None:
        """Start a table row."""
        if self._table_depth == 1:
            self._end_row()

    def cell(self) -> None:
        """Start a table cell."""
        if self._table_depth == 1:
            self._pieces.clear()

    def end_cell(self) -> None:
        """End a table cell."""
        if self._table_depth == 1:
            self._cells.append(self._take_text().replace("\n", " ").replace("|", "\\|"))

    def end_table(self) -> None:
        """End the innermost table."""
        if self._table_depth == 1:
            self._end_row()
        self._table_depth = max(self._table_depth - 1, 0)

    def _end_row(self) -> None:
        cells, self._cells = self._cells, []
        if not any(cells):
            return
        self._rows += 1
        kind = f"row of {self._table_number}"
        self._blocks.append((kind, f"| {' | '.join(cells)} |"))
        if self._rows == 1:
            self._blocks.append((kind, f"|{' --- |' * len(cells)}"))

    def _end(self) -> None:
        text = self._take_text()
        if not text:
            return
        self._blocks.append((self._kind, f"{self._prefix}{text}"))
        self._kind = self._prefix = ""

    def _take_text(self) -> str:
        """Return the text of the block, with whitespace collapsed and only explicit line breaks."""
        lines = "".join(self._pieces).split("\0")
        self._pieces.clear()
        return "\n".join(" ".join(line.split()) for line in lines).strip()


# The methods of the writer for the start and for the end of each element.
_STARTS: Mapping[str, Callable[[MarkdownWriter], None]] = {
    **dict.fromkeys(BLOCKS, MarkdownWriter.block),
    "li": MarkdownWriter.item,
    "pre": MarkdownWriter.begin_code,
    "table": MarkdownWriter.begin_table,
    "tr": MarkdownWriter.row,
    **dict.fromkeys(("td", "th"), MarkdownWriter.cell),
}
_ENDS: Mapping[str, Callable[[MarkdownWriter], None]] = {
    **dict.fromkeys((*BLOCKS, *HEADINGS, "li"), MarkdownWriter.block),
    **dict.fromkeys(("ul", "ol"), MarkdownWriter.end_list),
    "pre": MarkdownWriter.end_code,
    "table": MarkdownWriter.end_table,
    **dict.fromkeys(("td", "th"), MarkdownWriter.end_cell),
    "caption": MarkdownWriter.caption,
}
