"""The language of prompts written in the admin: placeholders, filters, conditions, messages.

It looks like Django's template language but is a different one: a text cannot access objects,
files, settings or functions, because all values are strings. Only this module parses placeholders,
filters and conditions, once, when a text is saved or loaded. Values are never parsed, so a value
that looks like the language is inserted unchanged. It has no loops: only placeholders can make
a text grow, and rendering limits what they add.

    Write to {{ customer|default:"a customer" }}.
    {% if tone == "formal" and not draft %}Be formal.{% elif tone %}Be {{ tone }}.{% endif %}
    {# not sent #} {% verbatim %}{{ sent as it is }}{% endverbatim %}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from django.utils.translation import gettext as _

from mcp_django.exceptions import InvalidParams
from mcp_django.protocol.content import Message
from mcp_django.protocol.text import clip, nearest

MAX_TEXT_CHARACTERS = 50_000
MAX_PLACEHOLDERS = 1000
MAX_FILTERS = 5
MAX_DEPTH = 20

FILTERS = ("capfirst", "default", "lower", "quote", "trim", "upper")
RESERVED = frozenset({"and", "or", "not"})
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_WORD = re.compile(
    r"\s*(?:(?P<sign>==|!=)"
    r'|"(?P<text>[^"]*)"'
    r"|'(?P<text_in_single_quotes>[^']*)'"
    r"|(?P<word>[A-Za-z]\w*)|(?P<other>\S))",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder for the value of an argument; each filter is its name and its argument."""

    name: str
    filters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Operand:
    """The name of an argument, or a literal text."""

    value: str
    is_name: bool


@dataclass(frozen=True, slots=True)
class ConditionTerm:
    """A test whether a value is not empty, or equals another one; may be negated."""

    operand: Operand
    equals: Operand | None = None
    is_negated: bool = False


Condition = tuple[tuple[ConditionTerm, ...], ...]
"""Groups of terms; true if all terms of one group are true."""


@dataclass(frozen=True, slots=True)
class Conditional:
    """An ``if`` tag: the first branch with a true condition is rendered."""

    branches: tuple[tuple[Condition, tuple[Node, ...]], ...]


Node = str | Placeholder | Conditional
# One group without terms, which is always true.
ALWAYS: Condition = ((),)


@dataclass(slots=True)
class _OpenConditional:
    """An ``if`` tag that is not closed yet."""

    line: int
    branches: list[tuple[Condition, tuple[Node, ...]]]
    condition: Condition
    before: list[Node]
    has_else: bool = False


@dataclass(slots=True)
class MessageParser:
    """Parses the messages of a text; ``names`` are the names of the arguments."""

    names: Collection[str]
    line: int = 1
    placeholder_count: int = 0
    _nodes: list[Node] = field(default_factory=list)
    _open: list[_OpenConditional] = field(default_factory=list)

    def parse(self, text: str) -> tuple[Node, ...]:
        """Parse a text into nodes.

        Raises:
            TextError: the text has a syntax error.
        """
        self._nodes, self._open = [], []
        for piece in _split_tags(text, self.line):
            self.line = piece.line
            if not piece.opener:
                self._nodes.append(piece.text)
            elif piece.opener == "{{":
                self.placeholder_count += 1
                if self.placeholder_count > MAX_PLACEHOLDERS:
                    raise self._error(_("More than %(n)d placeholders."), n=MAX_PLACEHOLDERS)
                name, *filters = _split(piece.text, "|")
                if len(filters) > MAX_FILTERS:
                    raise self._error(_("More than %(n)d filters."), n=MAX_FILTERS)
                name = self._check_argument(name.strip())
                self._nodes.append(Placeholder(name, tuple(map(self._parse_filter, filters))))
            elif piece.opener == "{%":
                self._parse_tag(piece.text)
        if self._open:
            raise TextError(self._open[-1].line, _("“if” has no “endif”."))
        return tuple(self._nodes)

    def _parse_filter(self, text: str) -> tuple[str, str]:
        name, *arguments = _split(text, ":")
        name = name.strip()
        if name not in FILTERS:
            names = ", ".join(FILTERS)
            raise self._error(_("No filter named “%(name)s”; valid: %(known)s."), name, names)
        takes = 1 if name == "default" else 0
        if len(arguments) != takes:
            way = '|default:"…"' if takes else f"|{name}"
            raise self._error(_("Write %(way)s."), way=way)
        if not arguments:
            return name, ""
        quoted = arguments[0].strip()
        quote, inside = quoted[:1], quoted[1:-1]
        if len(quoted) < 2 or quote not in "\"'" or quoted[-1] != quote or quote in inside:
            raise self._error(_("“%(name)s” is not a text in quotes."), quoted)
        return name, inside

    def _check_argument(self, name: str) -> str:
        if name in self.names:
            return name
        if "." in name or "[" in name or "(" in name:
            raise self._error(_("“%(name)s”: arguments are texts and have no attributes."), name)
        if close := nearest(name[:100], self.names):
            text = _("No argument named “%(name)s”; did you mean “%(known)s”?")
            raise self._error(text, name, close)
        names = ", ".join(self.names) or _("none")
        raise self._error(
            _("No argument named “%(name)s”; the arguments are: %(known)s."), name, names
        )

    def _parse_tag(self, inside: str) -> None:
        word, rest = [*inside.split(None, 1), "", ""][:2]
        if word == "if":
            if len(self._open) >= MAX_DEPTH:
                raise self._error(_("More than %(n)d nested conditions."), n=MAX_DEPTH)
            self._open.append(
                _OpenConditional(self.line, [], self._parse_condition(rest), self._nodes)
            )
            self._nodes = []
            return
        if word not in ("elif", "else", "endif"):
            tags = "if, elif, else, endif, verbatim"
            raise self._error(_("No tag named “%(name)s”; valid: %(known)s."), word, tags)
        if word != "elif" and rest.strip():
            raise self._error(_("“%(name)s” takes no arguments."), word)
        if not self._open:
            raise self._error(_("“%(name)s” without “if” before it."), word)
        opened = self._open[-1]
        if opened.has_else and word != "endif":
            raise self._error(_("“%(name)s” after “else”."), word)
        opened.branches.append((opened.condition, tuple(self._nodes)))
        self._nodes = []
        if word == "endif":
            self._open.pop()
            self._nodes = opened.before
            self._nodes.append(Conditional(tuple(opened.branches)))
        else:
            opened.has_else = word == "else"
            opened.condition = ALWAYS if word == "else" else self._parse_condition(rest)

    def _parse_condition(self, text: str) -> Condition:
        groups: list[tuple[ConditionTerm, ...]] = []
        group: list[ConditionTerm] = []
        words: list[tuple[str, str]] = []
        # Stripped, since trailing spaces would make this expression slow.
        for match in _WORD.finditer(text.strip()):
            kind = str(match.lastgroup)
            words.append((kind.removesuffix("_in_single_quotes"), match[kind]))
        if not words:
            raise self._error(_("A condition is missing."))
        while words:
            is_negated = False
            while words and words[0] == ("word", "not"):
                words.pop(0)
                is_negated = not is_negated
            operand, equals = self._parse_operand(words), None
            if words and words[0][0] == "sign":
                is_negated ^= words.pop(0)[1] == "!="
                equals = self._parse_operand(words)
            group.append(ConditionTerm(operand, equals, is_negated))
            following = words.pop(0) if words else ("word", "")
            if following == ("word", "and"):
                if words:
                    continue
                raise self._error(_("Nothing follows “%(name)s”."), "and")
            groups.append(tuple(group))
            group = []
            if following == ("word", "or") and not words:
                raise self._error(_("Nothing follows “%(name)s”."), "or")
            if following[1] not in ("", "or") or following[0] != "word":
                raise self._error(_("“%(name)s” is not expected here."), following[1])
        return tuple(groups)

    def _parse_operand(self, words: list[tuple[str, str]]) -> Operand:
        if not words:
            raise self._error(_("The condition ends too early."))
        kind, text = words.pop(0)
        if kind == "text":
            return Operand(text, is_name=False)
        if kind == "word" and text not in RESERVED:
            # The dot is kept in the name, so that the error explains that attributes do not exist.
            if words and words[0] == ("other", "."):
                text += "."
            return Operand(self._check_argument(text), is_name=True)
        raise self._error(_("“%(name)s” is not expected here."), text)

    def _error(self, message: str, name: str = "", known: str = "", **values: object) -> TextError:
        params = {"name": clip(name, limit=40), "known": known, **values}
        return TextError(self.line, message % params)


def _split(text: str, separator: str) -> list[str]:
    """Split a text at a separator, except within quotes."""
    parts, start, quoted = [], 0, ""
    for at, letter in enumerate(text):
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "\"'":
            quoted = letter
        elif letter == separator:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


# Splitting a text at its braces -------------------------------------------------------------------

_CLOSERS = {"{{": "}}", "{%": "%}", "{#": "#}"}
_OPENER = re.compile(r"\{[{%#]")
_END_OF_VERBATIM = re.compile(r"\{% *endverbatim *%\}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Literal text (no opener), or the text between an opener and its closer."""

    line: int
    opener: str
    text: str


def _split_tags(text: str, line: int) -> Iterator[Piece]:
    """Yield the pieces of a text that begins at ``line``, in linear time.

    A line that contains only one tag or comment is removed completely.

    Raises:
        TextError: an opener has no closer.
    """
    at = 0
    while True:
        match = _OPENER.search(text, at)
        if match is None:
            yield Piece(line, "", text[at:])
            return
        opener, start = match.group(), match.start()
        line_here = line + text.count("\n", at, start)
        end = text.find(_CLOSERS[opener], start + 2)
        line_end = text.find("\n", start)
        if end < 0 or -1 < line_end < end:
            message = _("“%(opener)s” has no “%(closer)s” on its line.")
            values = {"opener": opener, "closer": _CLOSERS[opener]}
            raise TextError(line_here, message % values)
        inside, after = text[start + 2 : end], end + 2
        is_verbatim = opener == "{%" and inside.strip() == "verbatim"
        left, right = (start, after) if opener == "{{" else _alone(text, start, after)
        # A preceding tag may already have consumed the text before this one.
        if left > at:
            yield Piece(line, "", text[at:left])
        line = line_here
        if is_verbatim:
            last = _END_OF_VERBATIM.search(text, right)
            if last is None:
                raise TextError(line, _("“verbatim” has no “endverbatim”."))
            inner_end, after_last = _alone(text, last.start(), last.end())
            inner_end = max(inner_end, right)
            yield Piece(line, "", text[right:inner_end])
            line += text.count("\n", start, after_last)
            at = after_last
            continue
        yield Piece(line, opener, inside)
        line += text.count("\n", start, right)
        at = right


def _alone(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the extent of a tag, or of its line if the line has no other text."""
    left = start
    while left > 0 and text[left - 1] in " \t":
        left -= 1
    right = end
    while right < len(text) and text[right] in " \t":
        right += 1
    is_first = left == 0 or text[left - 1] == "\n"
    is_last = right == len(text) or text[right] == "\n"
    if not (is_first and is_last):
        return start, end
    return left, min(right + 1, len(text))


class PromptError(ValueError):
    """A prompt is invalid; the message is for its author, and ``field`` names a column, if any."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class TextError(PromptError):
    """A text has a syntax error; the message names the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(
            _("Line %(line)d: %(message)s") % {"line": line, "message": message},
        )
        self.line = line


# From a text to messages --------------------------------------------------------------------------

# Messages are separated before values are inserted, so a value cannot add a message or change a
# role. The output has a limit, since a value may be inserted many times.

MAX_MESSAGES = 50
MAX_OUTPUT_CHARACTERS = 500_000

Role = Literal["user", "assistant"]
Values = Mapping[str, str]

_SEPARATOR = re.compile(r"^---[ \t]*(\w+)[ \t]*$", re.MULTILINE)
# A line that begins like a separator but is not valid is an error.
_SEPARATOR_LIKE = re.compile(r"---[ \t]*(?:user|assistant|system)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MessageText:
    """One message of a prompt, with its placeholders."""

    role: Role
    nodes: tuple[Node, ...]


def parse_messages(text: str, names: Collection[str]) -> tuple[MessageText, ...]:
    """Parse the messages of a text; text before the first separator is a message of the user.

    Raises:
        PromptError: the text is invalid; the message says where.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > MAX_TEXT_CHARACTERS:
        raise PromptError(
            _("The text has %(size)d characters; %(most)d are allowed.")
            % {"size": len(text), "most": MAX_TEXT_CHARACTERS}
        )
    reader = MessageParser(names)
    messages: list[MessageText] = []
    for line, role, part in _split_messages(text):
        if not part.strip():
            continue
        if len(messages) == MAX_MESSAGES:
            message = _("More than %(n)d messages.") % {"n": MAX_MESSAGES}
            raise TextError(line, message)
        reader.line = line
        messages.append(MessageText(role, reader.parse(part)))
    if not messages:
        raise PromptError(_("The text is empty."))
    return tuple(messages)


def _split_messages(text: str) -> Iterator[tuple[int, Role, str]]:
    """Yield the texts of the messages, with their first lines and roles."""
    role: Role = "user"
    start, line = 0, 1
    for match in _SEPARATOR.finditer(text):
        word = match[1].lower()
        if not _SEPARATOR_LIKE.match(match[0]):
            # Dashes and another word, as in Markdown.
            continue
        here = line + text.count("\n", start, match.start())
        if word not in ("user", "assistant"):
            raise TextError(here, _("The role of a message must be user or assistant."))
        yield line, role, text[start : match.start()]
        role = "user" if word == "user" else "assistant"
        start, line = match.end(), here
    yield line, role, text[start:]


def render_messages(messages: tuple[MessageText, ...], values: Values) -> list[Message]:
    """Return the messages with values inserted, without messages that become empty.

    Raises:
        InvalidParams: all messages are empty, or the output is too long.
    """
    budget = _OutputLimit()
    written = [
        (message.role, "".join(_render_nodes(message.nodes, values, budget)).strip())
        for message in messages
    ]
    rendered = [Message(text, role=role) for role, text in written if text]
    if not rendered:
        raise InvalidParams("With these arguments all messages of the prompt are empty.")
    return rendered


class _OutputLimit:
    """Counts the characters of the output against the limit."""

    def __init__(self) -> None:
        self._left = MAX_OUTPUT_CHARACTERS

    def count(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise InvalidParams(
                f"With these arguments the prompt is longer than {MAX_OUTPUT_CHARACTERS} "
                "characters; give shorter ones."
            )
        return text


def _render_nodes(nodes: tuple[Node, ...], values: Values, budget: _OutputLimit) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, str):
            yield budget.count(node)
        elif isinstance(node, Placeholder):
            text = values.get(node.name, "")
            for name, argument in node.filters:
                text = argument if name == "default" and not text else _FILTERS[name](text)
            yield budget.count(text)
        else:
            true_branches = (
                branch
                for condition, branch in node.branches
                if any(all(_is_term_true(term, values) for term in group) for group in condition)
            )
            yield from _render_nodes(next(true_branches, ()), values, budget)


def _is_term_true(term: ConditionTerm, values: Values) -> bool:
    value = _operand_value(term.operand, values)
    holds = bool(value) if term.equals is None else value == _operand_value(term.equals, values)
    return holds is not term.is_negated


def _operand_value(operand: Operand, values: Values) -> str:
    return values.get(operand.value, "") if operand.is_name else operand.value


def _quote(text: str) -> str:
    """Prefix each line with ``>``, so that models recognize the quotation."""
    return "\n".join(f"> {line}" for line in text.splitlines())


_FILTERS: Mapping[str, Callable[[str], str]] = {
    "capfirst": lambda text: text[:1].upper() + text[1:],
    "default": str,
    "lower": str.lower,
    "quote": _quote,
    "trim": str.strip,
    "upper": str.upper,
}
