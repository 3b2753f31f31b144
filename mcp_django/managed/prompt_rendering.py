"""The messages that a prompt of the admin makes of its arguments.

Messages are told apart before anything is filled in, so no value can add one or speak in another
role; and what comes out has a bound, since a value may be filled in many times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from django.utils.translation import gettext as _

from mcp_django.exceptions import InvalidParams
from mcp_django.managed.prompt_errors import PromptError, TextError
from mcp_django.managed.prompt_language import (
    MAX_TEXT_CHARACTERS,
    Blank,
    Choice,
    Condition,
    Node,
    Operand,
    Reader,
    Term,
)
from mcp_django.protocol.content import Message

MAX_MESSAGES = 50
MAX_OUTPUT_CHARACTERS = 500_000

Role = Literal["user", "assistant"]
Values = Mapping[str, str]

_SEPARATOR = re.compile(r"^---[ \t]*(\w+)[ \t]*$", re.MULTILINE)
# Anything else that begins like one was meant to be one.
_ALMOST = re.compile(r"---[ \t]*(?:user|assistant|system)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MessageText:
    """One message of a prompt, with its blanks."""

    role: Role
    nodes: tuple[Node, ...]


def read(text: str, names: Collection[str]) -> tuple[MessageText, ...]:
    """The messages of a text; what stands before the first line ``--- user`` is the user's.

    Raises:
        PromptError: the text cannot be read; the message says where.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > MAX_TEXT_CHARACTERS:
        raise PromptError(
            _("The text has %(size)d characters; %(most)d are allowed.")
            % {"size": len(text), "most": MAX_TEXT_CHARACTERS}
        )
    reader = Reader(names)
    found: list[MessageText] = []
    for line, role, part in _parts(text):
        if not part.strip():
            continue
        if len(found) == MAX_MESSAGES:
            message = _("More than %(n)d messages.") % {"n": MAX_MESSAGES}
            raise TextError(line, message)
        reader.line = line
        found.append(MessageText(role, reader.read(part)))
    if not found:
        raise PromptError(_("The text is empty."))
    return tuple(found)


def _parts(text: str) -> Iterator[tuple[int, Role, str]]:
    """The texts of the messages, with their first lines and roles."""
    role: Role = "user"
    start, line = 0, 1
    for found in _SEPARATOR.finditer(text):
        word = found[1].lower()
        if not _ALMOST.match(found[0]):
            # A line of dashes and a word, as Markdown has them.
            continue
        here = line + text.count("\n", start, found.start())
        if word not in ("user", "assistant"):
            raise TextError(here, _("A message is of the user or of the assistant."))
        yield line, role, text[start : found.start()]
        role = "user" if word == "user" else "assistant"
        start, line = found.end(), here
    yield line, role, text[start:]


def render(messages: tuple[MessageText, ...], values: Values) -> list[Message]:
    """The messages, filled in; one of which nothing is left is left out.

    Raises:
        InvalidParams: nothing is left at all, or too much came out.
    """
    budget = _Budget()
    written = [(one.role, "".join(_filled(one.nodes, values, budget)).strip()) for one in messages]
    kept = [Message(text, role=role) for role, text in written if text]
    if not kept:
        raise InvalidParams("Nothing is left of this prompt with these arguments.")
    return kept


class _Budget:
    """How much may still come out."""

    def __init__(self) -> None:
        self._left = MAX_OUTPUT_CHARACTERS

    def spend(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise InvalidParams(
                f"With these arguments the prompt is longer than {MAX_OUTPUT_CHARACTERS} "
                "characters; give shorter ones."
            )
        return text


def _filled(nodes: tuple[Node, ...], values: Values, budget: _Budget) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, str):
            yield budget.spend(node)
        elif isinstance(node, Blank):
            yield budget.spend(_value(node, values))
        else:
            yield from _filled(_branch(node, values), values, budget)


def _branch(choice: Choice, values: Values) -> tuple[Node, ...]:
    for condition, nodes in choice.branches:
        if _applies(condition, values):
            return nodes
    return ()


def _applies(condition: Condition, values: Values) -> bool:
    return any(all(_holds(term, values) for term in group) for group in condition)


def _holds(term: Term, values: Values) -> bool:
    value = _operand(term.operand, values)
    holds = bool(value) if term.equals is None else value == _operand(term.equals, values)
    return holds is not term.is_negated


def _operand(operand: Operand, values: Values) -> str:
    return values.get(operand.value, "") if operand.is_name else operand.value


def _value(blank: Blank, values: Values) -> str:
    text = values.get(blank.name, "")
    for name, given in blank.filters:
        text = given if name == "default" and not text else _FILTERS[name](text)
    return text


def _capfirst(text: str) -> str:
    return text[:1].upper() + text[1:]


def _quote(text: str) -> str:
    """Each line after a ``>``, so that a model can tell what is quoted."""
    return "\n".join(f"> {line}" for line in text.splitlines())


_FILTERS: Mapping[str, Callable[[str], str]] = {
    "capfirst": _capfirst,
    "default": str,
    "lower": str.lower,
    "quote": _quote,
    "trim": str.strip,
    "upper": str.upper,
}
