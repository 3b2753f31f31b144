"""Answers elicitation, sampling and roots requests of a server, at the terminal or from options.

A client request arrives in a result (MCP 2026-07-28, "Multi round-trip requests"), and its answer
is sent with the original request, repeated. The answer comes from a person at the terminal, or
from ``--answer`` options.

Prompts go to the error stream, so that the standard output contains only the result of the call.
The end of the input (Ctrl-D) cancels a request.
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

from mcp_django.management.lookups import suggest_similar
from mcp_django.management.text_output import escape_control_characters
from mcp_django.management.values import (
    InvalidFieldText,
    default_text,
    describe_field,
    has_default,
    parse_field,
    parse_json,
)
from mcp_django.protocol.text import clip
from mcp_django.schema.form_fields import FormField, fields_of

ClientResult = dict[str, Any]

FORM, PAGE, SAMPLING, ROOTS = "form", "page", "sampling", "roots"
ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"
DECLINED = {SAMPLING: "sampling request", ROOTS: "request for roots"}
"""The requests for which the protocol has no result that means that the user declined."""

SAMPLES = {
    "boolean": "yes",
    "integer": "1",
    "number": "1.5",
    "date": "2026-03-01",
    "datetime": "2026-03-01T14:30:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com/",
}
EXAMPLES = {
    FORM: "--answer accept or --answer decline",
    PAGE: "--answer accept or --answer decline",
    SAMPLING: "--answer 'the text of the model' (NAME=VALUE is for form fields only)",
    ROOTS: "--answer '[\"/a/directory\"]' (NAME=VALUE is for form fields only)",
}
"""An example of an answer for each kind of request; for a form, one without fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One client request of a server: elicitation, sampling or roots."""

    server_title: str
    method: str
    params: Mapping[str, Any]
    filled: Mapping[str, Any] = dataclass_field(default_factory=dict)
    """The fields that are already filled in from the command line."""

    @property
    def kind(self) -> str:
        """The kind of request: ``FORM``, ``PAGE``, ``SAMPLING`` or ``ROOTS``."""
        if self.method == "elicitation/create":
            return PAGE if self.params.get("mode") == "url" else FORM
        return SAMPLING if self.method == "sampling/createMessage" else ROOTS

    @property
    def message(self) -> str:
        """The server's message to the user."""
        return str(self.params.get("message", ""))

    @property
    def url(self) -> str:
        """The URL of the page to visit (URL mode elicitation)."""
        return str(self.params.get("url", ""))

    @property
    def fields(self) -> list[FormField]:
        """The fields of the form that are not filled in yet."""
        fields = fields_of(self.params.get("requestedSchema", {}))
        return [field for field in fields if field.name not in self.filled]


class Answerer(Protocol):
    """Answers client requests."""

    def answer(self, question: ClientRequest) -> ClientResult:
        """Return the client's result for a request."""


class NonInteractiveAnswerer:
    """Answers client requests without a terminal: raises an error, since no user can be asked."""

    def answer(self, question: ClientRequest) -> ClientResult:
        """Return the defaults for the rest of a form, if all other fields are filled in.

        Raises:
            CommandError: an answer is needed; the text shows the request and how to answer it.
        """
        if question.filled and all(map(_is_optional, question.fields)):
            rest = {
                field.name: field.shape.schema["default"]
                for field in question.fields
                if has_default(field)
            }
            return _accepted(rest)
        text = "\n".join(f"  {line}" for line in describe_request(question))
        example = EXAMPLES[question.kind]
        if question.kind == FORM and question.fields:
            needed = [field for field in question.fields if not _is_optional(field)]
            pairs = (f"{field.name}={_sample(field)}" for field in needed or question.fields)
            options = " ".join(f"--answer {shlex.quote(pair)}" for pair in pairs)
            example = f"{options} or --answer decline"
        raise CommandError(
            f"{question.server_title} asks for input, but no terminal is available to "
            f"answer:\n{text}\n"
            f"Answer with {example}; repeat the option for each request, in their order. "
            "--no-input acts as a client without elicitation, sampling and roots."
        )


def _is_optional(field: FormField) -> bool:
    return has_default(field) or not field.is_required


def describe_request(question: ClientRequest) -> list[str]:
    """Return a client request as lines of text."""
    if question.kind == FORM:
        return [*question.message.splitlines(), *map(_field_line, question.fields)]
    if question.kind == PAGE:
        return [*question.message.splitlines(), question.url]
    if question.kind == SAMPLING:
        return _sampling_lines(question.params)
    return ["Which directories do you work in?"]


def _field_line(field: FormField) -> str:
    """Return a field with its constraints, as one line."""
    label = "" if field.label == field.name else f" {field.label}"
    # Shows the value, which --answer takes, and the title, which a person may know.
    shape = field.shape
    choices = [title if title == value else f"{value} ({title})" for value, title in shape.choices]
    listed = f": {', '.join(choices)}" if choices else ""
    return f"{field.name}:{label} ({describe_field(field)}{listed})"


def _sampling_lines(params: Mapping[str, Any]) -> list[str]:
    """Return the messages of a sampling request as lines of text."""
    system = params.get("systemPrompt")
    lines = ["Write what a language model would answer to:"]
    lines += [f"system: {system}"] if system else []
    for message in params.get("messages", ()):
        content = message["content"]
        blocks = content if isinstance(content, list) else [content]
        lines += [f"{message['role']}: {block.get('text', block['type'])}" for block in blocks]
    return [*lines, f"(at most {params.get('maxTokens')} tokens)"]


def _sample(field: FormField) -> str:
    if has_default(field):
        return default_text(field.shape.schema["default"])
    if field.shape.choices:
        return str(field.shape.choices[0][0])
    return SAMPLES.get(field.shape.kind, "text")


# Answers from the command line --------------------------------------------------------------------

# Does not match a JSON object, array or string, nor a sampled text that has spaces before "=".
NAME_VALUE = re.compile(r"([^\s=\"{\[]+)=(.*)", re.DOTALL)


class RequestDeclined(CommandError):
    """A sampling or roots request was declined."""


class OptionAnswerer:
    """Answers client requests from ``--answer`` options in order, then by another answerer.

    ``NAME=VALUE`` fills in the next form field of that name; any other text answers a whole
    request.
    """

    def __init__(self, answers: Iterable[str], fallback: Answerer) -> None:
        self._named: dict[str, deque[str]] = {}
        self._whole: deque[str] = deque()
        self._requested_fields: set[str] = set()
        self._fallback = fallback
        for text in answers:
            if match := NAME_VALUE.fullmatch(text):
                self._named.setdefault(match[1], deque()).append(match[2])
            else:
                self._whole.append(text)

    def answer(self, question: ClientRequest) -> ClientResult:
        """Return the next answer, parsed for the kind of request.

        Raises:
            CommandError: the answer is not valid for this kind of request.
        """
        if question.kind == FORM:
            self._requested_fields.update(field.name for field in question.fields)
            if any(self._named.get(field.name) for field in question.fields):
                return self._filled_in(question)
        if not self._whole:
            return self._fallback.answer(question)
        return _parse_answer(question.kind, self._whole.popleft())

    def unused_text(self) -> str:
        """Return a text that lists the unused answers; empty if all were used."""
        lines = [
            f"--answer {name}={clip(text)}.{suggest_similar(name, self._requested_fields - {name})}"
            for name, texts in self._named.items()
            for text in texts
        ]
        lines += [f"--answer {clip(text)}." for text in self._whole]
        return "\n".join(f"No request used {line}" for line in lines)

    def _filled_in(self, question: ClientRequest) -> ClientResult:
        """Return a form filled in from named answers, the rest by the other answerer."""
        values: dict[str, Any] = {}
        problems = []
        for field in question.fields:
            if not self._named.get(field.name):
                continue
            text = self._named[field.name].popleft()
            try:
                values[field.name] = parse_field(field, text)
            except InvalidFieldText as exc:
                problems.append(f"--answer {field.name}={clip(text)}: {exc}")
        partial = replace(question, filled=values)
        if problems:
            still_open = [f"  {_field_line(field)}" for field in partial.fields]
            raise CommandError("\n".join([*problems, "Not answered yet:", *still_open]))
        content = {name: value for name, value in values.items() if value is not None}
        if not partial.fields:
            return _accepted(content)
        rest = self._fallback.answer(partial)
        return rest if rest["action"] != ACCEPT else _accepted({**content, **rest["content"]})


def _accepted(content: Mapping[str, Any]) -> ClientResult:
    """Return an accepted elicitation with its content."""
    return {"action": ACCEPT, "content": content}


def _sampled(text: str) -> ClientResult:
    """Return a text as a sampling result."""
    return {
        "role": "assistant",
        "content": {"type": "text", "text": text},
        "model": "mcp-call",
        "stopReason": "endTurn",
    }


def _rooted(directories: Iterable[str]) -> ClientResult:
    """Return directories (or ``file://`` URIs) as a roots result."""
    roots = []
    for directory in directories:
        if directory.startswith("file://"):
            roots.append({"uri": directory})
        else:
            path = Path(directory).expanduser().resolve()
            roots.append({"uri": path.as_uri(), "name": path.name or str(path)})
    return {"roots": roots}


def _declined(kind: str, action: str) -> ClientResult:
    """Return the result of a declined elicitation.

    Raises:
        RequestDeclined: the request is not an elicitation.
    """
    if kind in DECLINED:
        raise RequestDeclined(f"The {DECLINED[kind]} was declined, so the call ended.")
    return {"action": action}


def _parse_answer(kind: str, text: str) -> ClientResult:
    """Return the result for a whole request of a kind.

    Raises:
        CommandError: the text is not valid for this kind.
    """
    if text in (DECLINE, CANCEL):
        return _declined(kind, text)
    if kind == PAGE:
        if text != ACCEPT:
            raise _invalid_answer(text, "a page to visit", "accept, decline or cancel")
        return {"action": text}
    if kind == FORM and text == ACCEPT:
        return _accepted({})
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        value = None
    if kind == SAMPLING:
        return (
            value
            if isinstance(value, dict)
            else _sampled(value if isinstance(value, str) else text)
        )
    if kind == FORM:
        if not isinstance(value, dict):
            rule = (
                "NAME=VALUE for one field, or a JSON object, accept, decline or cancel for the "
                "whole form"
            )
            raise _invalid_answer(text, "a form", rule)
        return _accepted(value)
    if not isinstance(value, list) or not all(isinstance(directory, str) for directory in value):
        raise _invalid_answer(text, "roots", "a JSON array of directories")
    return _rooted(value)


def _invalid_answer(text: str, what: str, rule: str) -> CommandError:
    return CommandError(f"--answer {clip(text)} is not valid for {what}; write {rule}.")


# Terminal -----------------------------------------------------------------------------------------

YES_KEY, NO_KEY, CANCEL_KEY, EDIT_KEY = "y", "n", "c", "e"
ACTIONS = {NO_KEY: DECLINE, CANCEL_KEY: CANCEL}
MEANINGS = {NO_KEY: "decline", CANCEL_KEY: "cancel", EDIT_KEY: "change an answer"}


class TerminalAnswerer:
    """Answers client requests by prompting a person at the terminal."""

    def __init__(self, stdin: TextIO, stderr: OutputWrapper) -> None:
        self._stdin = stdin
        self._stderr = stderr

    def answer(self, question: ClientRequest) -> ClientResult:
        """Prompt for the answer to a request, and return it."""
        self._write_line(f"\n{question.server_title} asks:")
        try:
            if question.kind == FORM:
                return self._form(question)
            if question.kind == PAGE:
                return self._page(question)
            if question.kind == SAMPLING:
                return self._sampling(question)
            return self._roots()
        except EOFError:
            self._write_line("")
            if question.kind in (FORM, PAGE):
                return {"action": CANCEL}
            raise RequestDeclined("The request was not answered, so the call ended.") from None

    def _form(self, question: ClientRequest) -> ClientResult:
        self._write_line(question.message)
        fields = question.fields
        chosen = self._choose("Answer?" if fields else "Accept?", YES_KEY, NO_KEY, CANCEL_KEY)
        content: dict[str, object] = {}
        while chosen in (YES_KEY, EDIT_KEY):
            values = {field.name: self._field(field, content.get(field.name)) for field in fields}
            content = {name: value for name, value in values.items() if value is not None}
            if len(fields) < 2:
                break
            self._write_line(json.dumps(content, indent=2, ensure_ascii=False))
            chosen = self._choose("Send?", YES_KEY, EDIT_KEY, NO_KEY, CANCEL_KEY)
            if chosen == YES_KEY:
                break
        return {"action": ACTIONS[chosen]} if chosen in ACTIONS else _accepted(content)

    def _field(self, field: FormField, before: object) -> object:
        """Prompt for a field and return its value; ``None`` omits it. ``before`` is the default."""
        schema, choices = field.shape.schema, field.shape.choices
        description = str(schema.get("description", ""))
        self._write_line(f"  {field.label}: {description}" if description else f"  {field.label}")
        for number, (_, title) in enumerate(choices, start=1):
            self._write_line(f"    {number}  {title}")
        if before is not None:
            field = replace(field, shape=replace(field.shape, schema={**schema, "default": before}))
        schema = field.shape.schema
        default = f" [{default_text(schema['default'])}]" if has_default(field) else ""
        while True:
            text = self._read_line(f"    {describe_field(field)}{default}: ")
            try:
                return parse_field(field, text)
            except InvalidFieldText as exc:
                self._write_line(f"    {exc}")

    def _page(self, question: ClientRequest) -> ClientResult:
        self._write_line(question.message)
        self._write_line(f"  {question.url}")
        host = urlsplit(question.url).hostname
        chosen = self._choose(
            f"Open this page of {host}, then press Enter.", YES_KEY, NO_KEY, CANCEL_KEY
        )
        return {"action": ACTIONS.get(chosen, ACCEPT)}

    def _sampling(self, question: ClientRequest) -> ClientResult:
        for line in _sampling_lines(question.params):
            self._write_line(line)
        if self._choose("Answer?", YES_KEY, NO_KEY) == NO_KEY:
            _declined(question.kind, DECLINE)
        self._write_line("An empty line ends the text.")
        return _sampled("\n".join(self._lines()))

    def _roots(self) -> ClientResult:
        self._write_line(
            "Which directories do you work in? One a line; an empty line ends the list."
        )
        directories = []
        for line in self._lines():
            if Path(line).expanduser().is_dir():
                directories.append(line)
            else:
                self._write_line(f"No directory named {line!r}.")
        return _rooted(directories)

    def _lines(self) -> Iterator[str]:
        while line := self._read_line("> "):
            yield line

    def _choose(self, prompt: str, *choices: str) -> str:
        """Prompt for one of the letters and return it; an empty answer means the first."""
        letters = "/".join([choices[0].upper(), *choices[1:]])
        help_text = ", ".join(f"{letter}: {MEANINGS[letter]}" for letter in choices[1:])
        while True:
            text = self._read_line(f"{prompt} [{letters}] ").lower()[:1] or choices[0]
            if text in choices:
                return text
            self._write_line(f"Enter: continue, {help_text}.")

    def _write_line(self, text: str) -> None:
        self._stderr.write(escape_control_characters(text), style_func=str)

    def _read_line(self, prompt: str) -> str:
        self._stderr.write(escape_control_characters(prompt), style_func=str, ending="")
        self._stderr.flush()
        line = self._stdin.readline()
        if not line:
            raise EOFError
        return line.strip()
