"""What a server asks in the middle of a call, and who answers: a person, or prepared answers.

A question arrives in a result (MCP 2026-07-28, "Multi round-trip requests"), and its answer leaves
with the same request, sent again.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from django.core.management.base import CommandError

from mcp_django.management.fields import Field, fields_of

Answer = dict[str, Any]

FORM, PAGE, SAMPLING, ROOTS = "form", "page", "sampling", "roots"

# What a person or a script can answer; a model's use of tools is not among it.
CAPABILITIES: Mapping[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of a server."""

    asker: str
    method: str
    params: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """What sort of answer it wants."""
        if self.method == "elicitation/create":
            return PAGE if self.params.get("mode") == "url" else FORM
        return SAMPLING if self.method == "sampling/createMessage" else ROOTS

    @property
    def message(self) -> str:
        """What the server says to the person."""
        return str(self.params.get("message", ""))

    @property
    def url(self) -> str:
        """The page to visit."""
        return str(self.params.get("url", ""))

    @property
    def fields(self) -> list[Field]:
        """The fields of the form."""
        return fields_of(self.params.get("requestedSchema", {}))


class Answerer(Protocol):
    """Who answers."""

    def answer(self, question: Question) -> Answer:
        """The result that a client gives to the question."""


class Nobody:
    """Nobody is there to answer, so a question ends the call."""

    def answer(self, question: Question) -> Answer:
        """No answer.

        Raises:
            CommandError: saying what was asked, and how to answer it.
        """
        asked = "\n".join(f"  {line}" for line in description(question))
        raise CommandError(
            f"{question.asker} asks, and nobody is at a terminal to answer:\n{asked}\n"
            f"Answer with --answer {example(question)}, once for each question, in their order; "
            "--no-input acts as a client that cannot be asked."
        )


def description(question: Question) -> list[str]:
    """The question as lines of text."""
    if question.kind == FORM:
        return [*question.message.splitlines(), *map(_field_line, question.fields)]
    if question.kind == PAGE:
        return [*question.message.splitlines(), question.url]
    if question.kind == SAMPLING:
        return sampling_lines(question.params)
    return ["Which directories do you work in?"]


def _field_line(field: Field) -> str:
    label = "" if field.label == field.name else f" {field.label}"
    # The value is what a prepared answer has to say; the title may be all that a person knows.
    choices = [title if title == value else f"{value} ({title})" for value, title in field.choices]
    listed = f": {', '.join(choices)}" if choices else ""
    return f"{field.name}:{label} ({field.wants()}{listed})"


def sampling_lines(params: Mapping[str, Any]) -> list[str]:
    """What a model is asked to go on with."""
    system = params.get("systemPrompt")
    lines = ["Write what a language model would answer to:"]
    lines += [f"system: {system}"] if system else []
    for message in params.get("messages", ()):
        content = message["content"]
        blocks = content if isinstance(content, list) else [content]
        lines += [f"{message['role']}: {one.get('text', one['type'])}" for one in blocks]
    return [*lines, f"(at most {params.get('maxTokens')} tokens)"]


def example(question: Question) -> str:
    """An answer as a shell takes it."""
    if question.kind == FORM and question.fields:
        sample = {one.name: _sample(one) for one in question.fields}
        return f"{shlex.quote(json.dumps(sample, ensure_ascii=False))} or --answer decline"
    return {
        FORM: "accept or --answer decline",
        PAGE: "accept or --answer decline",
        SAMPLING: "'the text of the model'",
        ROOTS: "'[\"/a/directory\"]'",
    }[question.kind]


def _sample(field: Field) -> Any:
    if field.has_default:
        return field.schema["default"]
    if field.choices:
        first = field.choices[0][0]
        return [first] if field.is_multiple else first
    return {"boolean": True, "integer": 1, "number": 1.5}.get(field.schema.get("type", ""), "text")
