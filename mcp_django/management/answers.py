"""Answers to questions: prepared on the command line, or made of what a person typed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from mcp_django.management.questions import (
    FORM,
    PAGE,
    ROOTS,
    SAMPLING,
    Answer,
    Answerer,
    Question,
)

ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"


class Refused(CommandError):
    """A question was declined for which the protocol has no word but silence."""


class Prepared:
    """Answers given on the command line, used up in their order; then somebody else answers."""

    def __init__(self, answers: Iterable[str], otherwise: Answerer) -> None:
        self._answers = deque(answers)
        self._otherwise = otherwise

    def answer(self, question: Question) -> Answer:
        """The next prepared answer, as the kind of question wants it.

        Raises:
            CommandError: it is no answer to such a question.
        """
        if not self._answers:
            return self._otherwise.answer(question)
        return READERS[question.kind](self._answers.popleft())


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
            f"--answer {text}: a form takes a JSON object, accept, decline or cancel."
        )
    return accepted(content)


def _read_page(text: str) -> Answer:
    if text not in (ACCEPT, DECLINE, CANCEL):
        raise CommandError(f"--answer {text}: a page to visit takes accept, decline or cancel.")
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
        raise CommandError(f"--answer {text}: roots are a JSON array of directories.")
    return rooted(value)


def _parsed(text: str, *, otherwise: Any = None) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return otherwise


READERS = {FORM: _read_form, PAGE: _read_page, SAMPLING: _read_sample, ROOTS: _read_roots}
