"""Elicitation and other client requests of a server, answered at the terminal or beforehand.

A question arrives in a result (MCP 2026-07-28, "Multi round-trip requests"), and its answer
leaves with the same request, sent again. A person answers it, or answers that were prepared on
the command line.

What is asked goes to the error stream, so that the result of the call stays alone on the standard
output. The end of the input (Ctrl-D) cancels a question.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field as dataclass_field, replace
from pathlib import Path
from typing import Any, Protocol, TextIO
from urllib.parse import urlsplit

from django.core.management.base import CommandError, OutputWrapper

from mcp_django.management.lookups import nearest
from mcp_django.management.text_output import printable
from mcp_django.management.values import Field, UnfitText, fields_of, load_json
from mcp_django.protocol.errors import clip

# Questions, and what answers them -----------------------------------------------------------------

Answer = dict[str, Any]

FORM, PAGE, SAMPLING, ROOTS = "form", "page", "sampling", "roots"
ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"

# What a person or a script can answer; a model's use of tools is not among it.
CAPABILITIES: Mapping[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
}
SAMPLES = {
    "boolean": "yes",
    "integer": "1",
    "number": "1.5",
    "date": "2026-03-01",
    "date-time": "2026-03-01T14:30:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com/",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of a server."""

    asker: str
    method: str
    params: Mapping[str, Any]
    given: Mapping[str, Any] = dataclass_field(default_factory=dict)
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
            return _accepted(rest)
        asked = "\n".join(f"  {line}" for line in description(question))
        raise CommandError(
            f"{question.asker} asks, and nobody is at a terminal to answer:\n{asked}\n"
            f"Answer with {_example(question)}; repeat the option for each question, in their "
            "order. --no-input acts as a client that cannot be asked."
        )


def _may_be_left_out(field: Field) -> bool:
    return field.has_default or not field.is_required


def description(question: Question) -> list[str]:
    """The question as lines of text."""
    if question.kind == FORM:
        return [*question.message.splitlines(), *map(_field_line, question.fields)]
    if question.kind == PAGE:
        return [*question.message.splitlines(), question.url]
    if question.kind == SAMPLING:
        return _sampling_lines(question.params)
    return ["Which directories do you work in?"]


def _field_line(field: Field) -> str:
    """A field with its rule, as one line."""
    label = "" if field.label == field.name else f" {field.label}"
    # The value is what a prepared answer has to say; the title may be all that a person knows.
    choices = [title if title == value else f"{value} ({title})" for value, title in field.choices]
    listed = f": {', '.join(choices)}" if choices else ""
    return f"{field.name}:{label} ({field.wants()}{listed})"


def _sampling_lines(params: Mapping[str, Any]) -> list[str]:
    """What a model is asked to go on with."""
    system = params.get("systemPrompt")
    lines = ["Write what a language model would answer to:"]
    lines += [f"system: {system}"] if system else []
    for message in params.get("messages", ()):
        content = message["content"]
        blocks = content if isinstance(content, list) else [content]
        lines += [f"{message['role']}: {one.get('text', one['type'])}" for one in blocks]
    return [*lines, f"(at most {params.get('maxTokens')} tokens)"]


def _example(question: Question) -> str:
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


# Prepared and typed answers -----------------------------------------------------------------------

# A JSON object, array or text starts otherwise, and what a model says has spaces.
NAMED = re.compile(r"([^\s=\"{\[]+)=(.*)", re.DOTALL)


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
            still_open = [f"  {_field_line(field)}" for field in partial.fields]
            raise CommandError("\n".join([*problems, "Still open:", *still_open]))
        content = {name: value for name, value in given.items() if value is not None}
        if not partial.fields:
            return _accepted(content)
        rest = self._otherwise.answer(partial)
        return rest if rest["action"] != ACCEPT else _accepted({**content, **rest["content"]})


def _accepted(content: Mapping[str, Any]) -> Answer:
    """A yes, with what was filled in."""
    return {"action": ACCEPT, "content": content}


def _sampled(text: str) -> Answer:
    """A text as the message of a model."""
    return {
        "role": "assistant",
        "content": {"type": "text", "text": text},
        "model": "mcp-call",
        "stopReason": "endTurn",
    }


def _rooted(directories: Iterable[str]) -> Answer:
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
        return _accepted({})
    content = _parsed(text)
    if not isinstance(content, dict):
        raise CommandError(
            f"--answer {clip(text)}: a form takes NAME=VALUE, "
            "or as a whole a JSON object, accept, decline or cancel."
        )
    return _accepted(content)


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
    return value if isinstance(value, dict) else _sampled(value if isinstance(value, str) else text)


def _read_roots(text: str) -> Answer:
    if text in (DECLINE, CANCEL):
        raise Refused("The directories were declined, so the call ended.")
    value = _parsed(text)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise CommandError(f"--answer {clip(text)}: roots are a JSON array of directories.")
    return _rooted(value)


def _parsed(text: str, *, otherwise: Any = None) -> Any:
    try:
        return load_json(text)
    except (ValueError, RecursionError):
        return otherwise


READERS = {FORM: _read_form, PAGE: _read_page, SAMPLING: _read_sample, ROOTS: _read_roots}


# Terminal -----------------------------------------------------------------------------------------

YES_KEY, NO_KEY, CANCEL_KEY, EDIT_KEY = "y", "n", "c", "e"
ACTIONS = {NO_KEY: DECLINE, CANCEL_KEY: CANCEL}
MEANINGS = {NO_KEY: "decline", CANCEL_KEY: "cancel", EDIT_KEY: "change an answer"}


class Terminal:
    """Asks at one terminal."""

    def __init__(self, stdin: TextIO, stderr: OutputWrapper) -> None:
        self._stdin = stdin
        self._stderr = stderr

    def answer(self, question: Question) -> Answer:
        """What the person answers."""
        self._say(f"\n{question.asker} asks:")
        try:
            if question.kind == FORM:
                return self._form(question)
            if question.kind == PAGE:
                return self._page(question)
            if question.kind == SAMPLING:
                return self._sampling(question)
            return self._roots()
        except EOFError:
            self._say("")
            if question.kind in (FORM, PAGE):
                return {"action": CANCEL}
            raise Refused("The question was not answered, so the call ended.") from None

    def _form(self, question: Question) -> Answer:
        self._say(question.message)
        fields = question.fields
        chosen = self._choose("Answer?" if fields else "Accept?", YES_KEY, NO_KEY, CANCEL_KEY)
        content: dict[str, object] = {}
        while chosen in (YES_KEY, EDIT_KEY):
            content = self._fill_in(fields, content)
            if len(fields) < 2:
                break
            self._say(json.dumps(content, indent=2, ensure_ascii=False))
            chosen = self._choose("Send?", YES_KEY, EDIT_KEY, NO_KEY, CANCEL_KEY)
            if chosen == YES_KEY:
                break
        return {"action": ACTIONS[chosen]} if chosen in ACTIONS else _accepted(content)

    def _fill_in(self, fields: list[Field], before: dict[str, object]) -> dict[str, object]:
        content = {}
        for field in fields:
            value = self._field(field, before.get(field.name))
            if value is not None:
                content[field.name] = value
        return content

    def _field(self, field: Field, before: object) -> object:
        """The value of a field; ``None`` leaves it out. What was there before is the default."""
        description = str(field.schema.get("description", ""))
        self._say(f"  {field.label}: {description}" if description else f"  {field.label}")
        for number, (_, title) in enumerate(field.choices, start=1):
            self._say(f"    {number}  {title}")
        if before is not None:
            field = field.with_default(before)
        default = f" [{field.default_text()}]" if field.has_default else ""
        while True:
            text = self._ask(f"    {field.wants()}{default}: ")
            try:
                return field.read(text)
            except UnfitText as exc:
                self._say(f"    {exc}")

    def _page(self, question: Question) -> Answer:
        self._say(question.message)
        self._say(f"  {question.url}")
        host = urlsplit(question.url).hostname
        chosen = self._choose(
            f"Open this page of {host}, then press Enter.", YES_KEY, NO_KEY, CANCEL_KEY
        )
        return {"action": ACTIONS.get(chosen, ACCEPT)}

    def _sampling(self, question: Question) -> Answer:
        for line in _sampling_lines(question.params):
            self._say(line)
        if self._choose("Answer?", YES_KEY, NO_KEY) == NO_KEY:
            raise Refused("The model's answer was declined, so the call ended.")
        self._say("An empty line ends the text.")
        return _sampled("\n".join(self._lines()))

    def _roots(self) -> Answer:
        self._say("Which directories do you work in? One a line; an empty line ends the list.")
        found = []
        for line in self._lines():
            if Path(line).expanduser().is_dir():
                found.append(line)
            else:
                self._say(f"There is no directory {line!r}.")
        return _rooted(found)

    def _lines(self) -> Iterator[str]:
        while line := self._ask("> "):
            yield line

    def _choose(self, prompt: str, *choices: str) -> str:
        """One of the letters; an empty answer means the first."""
        shown = "/".join([choices[0].upper(), *choices[1:]])
        help_text = ", ".join(f"{letter}: {MEANINGS[letter]}" for letter in choices[1:])
        while True:
            text = self._ask(f"{prompt} [{shown}] ").lower()[:1] or choices[0]
            if text in choices:
                return text
            self._say(f"Enter goes on; {help_text}.")

    def _say(self, text: str) -> None:
        self._stderr.write(printable(text), style_func=str)

    def _ask(self, prompt: str) -> str:
        self._stderr.write(printable(prompt), style_func=str, ending="")
        self._stderr.flush()
        line = self._stdin.readline()
        if not line:
            raise EOFError
        return line.strip()
