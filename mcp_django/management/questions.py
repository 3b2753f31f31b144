"""What a server asks in the middle of a call, and who answers: a person, or prepared answers.

A question arrives in a result (MCP 2026-07-28, "Multi round-trip requests"), and its answer leaves
with the same request, sent again.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    given: Mapping[str, Any] = field(default_factory=dict)
    """The fields that the command line has filled in already."""

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
        """The fields of the form that are still open."""
        found = fields_of(self.params.get("requestedSchema", {}))
        return [one for one in found if one.name not in self.given]


class Answerer(Protocol):
    """Who answers."""

    def answer(self, question: Question) -> Answer:
        """The result that a client gives to the question."""


class Nobody:
    """Nobody is there to answer, so a question ends the call."""

    def answer(self, question: Question) -> Answer:
        """No answer, but the defaults of a form of which the rest was given.

        Raises:
            CommandError: saying what was asked, and how to answer it.
        """
        if question.given and all(map(_may_be_left_out, question.fields)):
            rest = {one.name: one.schema["default"] for one in question.fields if one.has_default}
            return {"action": "accept", "content": rest}
        asked = "\n".join(f"  {line}" for line in description(question))
        raise CommandError(
            f"{question.asker} asks, and nobody is at a terminal to answer:\n{asked}\n"
            f"Answer with {example(question)}; repeat the option for each question, in their "
            "order. --no-input acts as a client that cannot be asked."
        )


def _may_be_left_out(field: Field) -> bool:
    return field.has_default or not field.is_required


def description(question: Question) -> list[str]:
    """The question as lines of text."""
    if question.kind == FORM:
        return [*question.message.splitlines(), *map(field_line, question.fields)]
    if question.kind == PAGE:
        return [*question.message.splitlines(), question.url]
    if question.kind == SAMPLING:
        return sampling_lines(question.params)
    return ["Which directories do you work in?"]


def field_line(field: Field) -> str:
    """A field with its rule, as one line."""
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
        needed = [one for one in question.fields if not _may_be_left_out(one)]
        pairs = (f"{one.name}={_sample(one)}" for one in needed or question.fields)
        return f"{' '.join(f'--answer {shlex.quote(pair)}' for pair in pairs)} or --answer decline"
    return {
        FORM: "--answer accept or --answer decline",
        PAGE: "--answer accept or --answer decline",
        SAMPLING: "--answer 'the text of the model' (NAME=VALUE is for the fields of forms)",
        ROOTS: "--answer '[\"/a/directory\"]' (NAME=VALUE is for the fields of forms)",
    }[question.kind]


def _sample(field: Field) -> str:
    if field.has_default:
        return field.default_text()
    if field.choices:
        return str(field.choices[0][0])
    kind = field.schema.get("format", field.schema.get("type", ""))
    return SAMPLES.get(kind, "text")


SAMPLES = {
    "boolean": "yes",
    "integer": "1",
    "number": "1.5",
    "date": "2026-03-01",
    "date-time": "2026-03-01T14:30:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com/",
}
