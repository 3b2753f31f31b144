"""The language of prompts that are written in the admin.

It looks like Django's templates and is none of them: there is no way from a text to an object, a
file, a setting or a function, because there is nothing but texts. Blanks, filters and conditions
are read by this module alone, once, when a text is saved or loaded. Values are never read at all,
so one that looks like the language stays what it is. There are no loops: a text can grow by its
blanks alone, and ``prompt_rendering`` counts what they add.

    Write to {{ customer|default:"a customer" }}.
    {% if tone == "formal" and not draft %}Be formal.{% elif tone %}Be {{ tone }}.{% endif %}
    {# not sent #} {% verbatim %}{{ sent as it is }}{% endverbatim %}
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

from django.utils.translation import gettext as _

from mcp_django.managed.prompt_errors import TextError
from mcp_django.managed.prompt_pieces import pieces

MAX_TEXT_CHARACTERS = 50_000
MAX_BLANKS = 1000
MAX_FILTERS = 5
MAX_DEPTH = 20

FILTERS = ("capfirst", "default", "lower", "quote", "trim", "upper")
RESERVED = frozenset({"and", "or", "not"})
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_WORD = re.compile(r'\s*(?:(==|!=)|"([^"]*)"|\'([^\']*)\'|([A-Za-z]\w*)|(\S))', re.ASCII)


@dataclass(frozen=True, slots=True)
class Blank:
    """Room for the value of an argument, changed by filters, each with what it was given."""

    name: str
    filters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument by its name, or a text that stands there."""

    value: str
    is_name: bool


@dataclass(frozen=True, slots=True)
class Term:
    """Whether a value is not empty, or equal to another; the other way round if it is negated."""

    operand: Operand
    equals: Operand | None = None
    is_negated: bool = False


Condition = tuple[tuple[Term, ...], ...]
"""Groups of terms, of which all of one group have to hold."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The first of these branches whose condition holds."""

    branches: tuple[tuple[Condition, tuple[Node, ...]], ...]


Node = str | Blank | Choice
# One group without a term in it, all of which hold.
ALWAYS: Condition = ((),)


@dataclass(slots=True)
class _Open:
    """A condition that is being read."""

    line: int
    branches: list[tuple[Condition, tuple[Node, ...]]]
    condition: Condition
    before: list[Node]
    has_else: bool = False


@dataclass(slots=True)
class Reader:
    """Reads one message of a text; ``names`` are the arguments there are."""

    names: Collection[str]
    line: int = 1
    blanks: int = 0
    _nodes: list[Node] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)

    def read(self, text: str) -> tuple[Node, ...]:
        """The text in nodes.

        Raises:
            TextError: it cannot be read.
        """
        self._nodes, self._open = [], []
        for piece in pieces(text, self.line):
            self.line = piece.line
            if not piece.opener:
                self._nodes.append(piece.text)
            elif piece.opener == "{{":
                self._nodes.append(self._blank(piece.text))
            elif piece.opener == "{%":
                self._tag(piece.text)
        if self._open:
            raise TextError(self._open[-1].line, _("“if” has no “endif”."))
        return tuple(self._nodes)

    # Blanks -----------------------------------------------------------------------------------

    def _blank(self, inside: str) -> Blank:
        self.blanks += 1
        if self.blanks > MAX_BLANKS:
            raise self._wrong(_("More than %(n)d blanks."), n=MAX_BLANKS)
        name, *filters = _split(inside, "|")
        if len(filters) > MAX_FILTERS:
            raise self._wrong(_("More than %(n)d filters."), n=MAX_FILTERS)
        return Blank(self._known(name.strip()), tuple(map(self._filter, filters)))

    def _filter(self, text: str) -> tuple[str, str]:
        name, *given = _split(text, ":")
        name = name.strip()
        if name not in FILTERS:
            known = ", ".join(FILTERS)
            raise self._wrong(_("There is no filter “%(name)s”; there are %(known)s."), name, known)
        takes = 1 if name == "default" else 0
        if len(given) != takes:
            way = '|default:"…"' if takes else f"|{name}"
            raise self._wrong(_("Write %(way)s."), way=way)
        return name, self._quoted(given[0]) if given else ""

    def _quoted(self, text: str) -> str:
        text = text.strip()
        if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0] or text[0] in text[1:-1]:
            raise self._wrong(_("“%(name)s” is no text in quotes."), text)
        return text[1:-1]

    def _known(self, name: str) -> str:
        if name in self.names:
            return name
        if "." in name or "[" in name or "(" in name:
            raise self._wrong(_("“%(name)s”: arguments are texts and have nothing inside."), name)
        nearest = get_close_matches(name[:100], self.names, n=1)
        if nearest:
            text = _("There is no argument “%(name)s”; did you mean “%(known)s”?")
            raise self._wrong(text, name, nearest[0])
        known = ", ".join(self.names) or _("none")
        raise self._wrong(_("There is no argument “%(name)s”; there are: %(known)s."), name, known)

    # Conditions -------------------------------------------------------------------------------

    def _tag(self, inside: str) -> None:
        word, rest = [*inside.split(None, 1), "", ""][:2]
        if word == "if":
            if len(self._open) >= MAX_DEPTH:
                raise self._wrong(_("More than %(n)d conditions inside each other."), n=MAX_DEPTH)
            self._open.append(_Open(self.line, [], self._condition(rest), self._nodes))
            self._nodes = []
            return
        if word not in ("elif", "else", "endif"):
            known = "if, elif, else, endif, verbatim"
            raise self._wrong(_("There is no tag “%(name)s”; there are %(known)s."), word, known)
        if word != "elif" and rest.strip():
            raise self._wrong(_("“%(name)s” takes nothing."), word)
        if not self._open:
            raise self._wrong(_("“%(name)s” without “if” before it."), word)
        opened = self._open[-1]
        if opened.has_else and word != "endif":
            raise self._wrong(_("“%(name)s” after “else”."), word)
        opened.branches.append((opened.condition, tuple(self._nodes)))
        self._nodes = []
        if word == "endif":
            self._open.pop()
            self._nodes = opened.before
            self._nodes.append(Choice(tuple(opened.branches)))
        else:
            opened.has_else = word == "else"
            opened.condition = ALWAYS if word == "else" else self._condition(rest)

    def _condition(self, text: str) -> Condition:
        groups: list[tuple[Term, ...]] = []
        group: list[Term] = []
        words = list(_words(text))
        if not words:
            raise self._wrong(_("A condition is missing."))
        while words:
            group.append(self._test(words))
            following = words.pop(0) if words else ("word", "")
            if following == ("word", "and"):
                if words:
                    continue
                raise self._wrong(_("Nothing follows “%(name)s”."), "and")
            groups.append(tuple(group))
            group = []
            if following == ("word", "or") and not words:
                raise self._wrong(_("Nothing follows “%(name)s”."), "or")
            if following[1] not in ("", "or") or following[0] != "word":
                raise self._wrong(_("“%(name)s” is not expected here."), following[1])
        return tuple(groups)

    def _test(self, words: list[tuple[str, str]]) -> Term:
        is_negated = False
        while words and words[0] == ("word", "not"):
            words.pop(0)
            is_negated = not is_negated
        operand = self._operand(words)
        if not words or words[0][0] != "sign":
            return Term(operand, is_negated=is_negated)
        is_negated ^= words.pop(0)[1] == "!="
        return Term(operand, self._operand(words), is_negated)

    def _operand(self, words: list[tuple[str, str]]) -> Operand:
        if not words:
            raise self._wrong(_("The condition ends too early."))
        kind, text = words.pop(0)
        if kind == "text":
            return Operand(text, is_name=False)
        if kind == "word" and text not in RESERVED:
            # What stands behind a dot is named too, so that the message says what is wrong.
            if words and words[0] == ("other", "."):
                text += "."
            return Operand(self._known(text), is_name=True)
        raise self._wrong(_("“%(name)s” is not expected here."), text)

    def _wrong(self, message: str, name: str = "", known: str = "", **values: object) -> TextError:
        shown = name if len(name) <= 40 else f"{name[:39]}…"
        return TextError(self.line, message % {"name": shown, "known": known, **values})


def _words(text: str) -> Iterator[tuple[str, str]]:
    """A condition word by word: signs, texts in quotes, words, and what is none of them."""
    # Stripped: spaces at the end are where this expression would be slow.
    for sign, double, single, word, other in _WORD.findall(text.strip()):
        if sign:
            yield "sign", sign
        elif word:
            yield "word", word
        elif other:
            yield "other", other
        else:
            yield "text", double or single


def _split(text: str, mark: str) -> list[str]:
    """Split at a mark, but not within quotes."""
    parts, start, quoted = [], 0, ""
    for at, letter in enumerate(text):
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "\"'":
            quoted = letter
        elif letter == mark:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
