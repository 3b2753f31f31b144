"""Questions of a server, put to the person at the terminal.

What is asked goes to the error stream, so that the answer of the call stays alone on the other.
The end of the input (Ctrl-D) cancels a question.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from django.core.management.base import OutputWrapper

from mcp_django.management import answers
from mcp_django.management.answers import Refused, accepted, rooted, sampled
from mcp_django.management.fields import Field
from mcp_django.management.questions import (
    FORM,
    PAGE,
    SAMPLING,
    Answer,
    Question,
    sampling_lines,
)
from mcp_django.management.rendering import printable
from mcp_django.management.typed import UnfitText

YES, NO, CANCEL, EDIT = "y", "n", "c", "e"
ACTIONS = {NO: answers.DECLINE, CANCEL: answers.CANCEL}
MEANINGS = {NO: "decline", CANCEL: "cancel", EDIT: "change an answer"}


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
                return {"action": answers.CANCEL}
            raise Refused("The question was not answered, so the call ended.") from None

    def _form(self, question: Question) -> Answer:
        self._say(question.message)
        fields = question.fields
        chosen = self._choose("Answer?" if fields else "Accept?", YES, NO, CANCEL)
        content: dict[str, object] = {}
        while chosen in (YES, EDIT):
            content = self._fill_in(fields, content)
            if len(fields) < 2:
                break
            self._say(json.dumps(content, indent=2, ensure_ascii=False))
            chosen = self._choose("Send?", YES, EDIT, NO, CANCEL)
            if chosen == YES:
                break
        return {"action": ACTIONS[chosen]} if chosen in ACTIONS else accepted(content)

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
        chosen = self._choose(f"Open this page of {host}, then press Enter.", YES, NO, CANCEL)
        return {"action": ACTIONS.get(chosen, answers.ACCEPT)}

    def _sampling(self, question: Question) -> Answer:
        for line in sampling_lines(question.params):
            self._say(line)
        if self._choose("Answer?", YES, NO) == NO:
            raise Refused("The model's answer was declined, so the call ended.")
        self._say("An empty line ends the text.")
        return sampled("\n".join(self._lines()))

    def _roots(self) -> Answer:
        self._say("Which directories do you work in? One a line; an empty line ends the list.")
        found = []
        for line in self._lines():
            if Path(line).expanduser().is_dir():
                found.append(line)
            else:
                self._say(f"There is no directory {line!r}.")
        return rooted(found)

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
