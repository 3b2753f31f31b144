"""Answers to questions: prepared on the command line, or made of what a person typed."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from mcp_django.management.lookups import nearest
from mcp_django.management.questions import (
    FORM,
    PAGE,
    ROOTS,
    SAMPLING,
    Answer,
    Answerer,
    Question,
    field_line,
)
from mcp_django.management.typed import UnfitText
from mcp_django.management.values import load_json
from mcp_django.protocol.errors import clip

# A JSON object, array or text starts otherwise, and what a model says has spaces.
NAMED = re.compile(r"([^\s=\"{\[]+)=(.*)", re.DOTALL)

ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"


class Refused(CommandError):
    """A question was declined for which the protocol has no word but silence."""


class Prepared:
    """Answers given on the command line, used up in their order; then another answerer answers.

    ``NAME=VALUE`` fills in the next field of that name, any other text answers a whole question.
    """

    def __init__(self, answers: Iterable[str], otherwise: Answerer) -> None:
        self._named: dict[str, deque[str]] = {}
        self._whole: deque[str] = deque()
        self._asked: set[str] = set()
        self._otherwise = otherwise
        for text in answers:
            if match := NAMED.fullmatch(text):
                self._named.setdefault(match[1], deque()).append(match[2])
            else:
                self._whole.append(text)

    def answer(self, question: Question) -> Answer:
        """The next prepared answer, as the kind of question wants it.

        Raises:
            CommandError: it is no answer to such a question.
        """
        if question.kind == FORM:
            self._asked.update(field.name for field in question.fields)
            if any(self._named.get(field.name) for field in question.fields):
                return self._filled_in(question)
        if not self._whole:
            return self._otherwise.answer(question)
        return READERS[question.kind](self._whole.popleft())

    def unused(self) -> str:
        """Say which answers no question asked for; nothing if all were used."""
        named = [
            f"--answer {name}={clip(text)}.{nearest(name, self._asked - {name})}"
            for name, texts in self._named.items()
            for text in texts
        ]
        lines = [*named, *(f"--answer {clip(text)}." for text in self._whole)]
        return "\n".join(f"No question asked for {line}" for line in lines)

    def _filled_in(self, question: Question) -> Answer:
        """A form with its named fields; what is still open is asked of the other answerer."""
        given: dict[str, Any] = {}
        problems = []
        for field in question.fields:
            if not self._named.get(field.name):
                continue
            text = self._named[field.name].popleft()
            try:
                given[field.name] = field.read(text)
            except UnfitText as exc:
                rule = f"{field.name} wants {field.wants()}"
                problems.append(f"--answer {field.name}={clip(text)}: {exc} ({rule})")
        partial = replace(question, given=given)
        if problems:
            still_open = [f"  {field_line(field)}" for field in partial.fields]
            raise CommandError("\n".join([*problems, "Still open:", *still_open]))
        content = {name: value for name, value in given.items() if value is not None}
        if not partial.fields:
            return accepted(content)
        rest = self._otherwise.answer(partial)
        return rest if rest["action"] != ACCEPT else accepted({**content, **rest["content"]})


def accepted(content: Mapping[str, Any]) -> Answer:
    """A yes, with what was filled in."""
    return {"action": ACCEPT, "content": content}


def sampled(text: str) -> Answer:
    """A text as the message of a model."""
    return {
        "role": "assistant",
        "content": {"type": "text", "text": text},
        "model": "mcp-call",
        "stopReason": "endTurn",
    }


def rooted(directories: Iterable[str]) -> Answer:
    """Directories (or ``file://`` URIs) as roots."""
    return {"roots": [_root(one) for one in directories]}


def _root(directory: str) -> dict[str, str]:
    if directory.startswith("file://"):
        return {"uri": directory}
    path = Path(directory).expanduser().resolve()
    return {"uri": path.as_uri(), "name": path.name or str(path)}


def _read_form(text: str) -> Answer:
    if text in (DECLINE, CANCEL):
        return {"action": text}
    if text == ACCEPT:
        return accepted({})
    content = _parsed(text)
    if not isinstance(content, dict):
        raise CommandError(
            f"--answer {clip(text)}: a form takes NAME=VALUE, "
            "or as a whole a JSON object, accept, decline or cancel."
        )
    return accepted(content)


def _read_page(text: str) -> Answer:
    if text not in (ACCEPT, DECLINE, CANCEL):
        raise CommandError(
            f"--answer {clip(text)}: a page to visit takes accept, decline or cancel."
        )
    return {"action": text}


def _read_sample(text: str) -> Answer:
    if text in (DECLINE, CANCEL):
        raise Refused("The model's answer was declined, so the call ended.")
    value = _parsed(text, otherwise=text)
    return value if isinstance(value, dict) else sampled(value if isinstance(value, str) else text)


def _read_roots(text: str) -> Answer:
    if text in (DECLINE, CANCEL):
        raise Refused("The directories were declined, so the call ended.")
    value = _parsed(text)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise CommandError(f"--answer {clip(text)}: roots are a JSON array of directories.")
    return rooted(value)


def _parsed(text: str, *, otherwise: Any = None) -> Any:
    try:
        return load_json(text)
    except (ValueError, RecursionError):
        return otherwise


READERS = {FORM: _read_form, PAGE: _read_page, SAMPLING: _read_sample, ROOTS: _read_roots}
