"""The arguments of a prompt that is written in the admin: texts, some of them to choose from.

Python's signatures are no model for them: ``from`` and ``class`` are good names for a blank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from mcp_django.managed.prompt_errors import PromptError
from mcp_django.managed.prompt_language import NAME, RESERVED
from mcp_django.schema.arguments import InvalidArguments, Problem, quote, unknown_argument
from mcp_django.schema.values import decode_arguments

MAX_ARGUMENTS = 30
MAX_NAME_CHARACTERS = 64
MAX_CHOICES = 200
MAX_VALUE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TextArgument:
    """One argument; without ``choices`` it is any text."""

    name: str
    description: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """What is kept of it in the row."""
        return {
            "name": self.name,
            "description": self.description,
            "required": self.required,
            "choices": list(self.choices),
        }

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of its value."""
        schema: dict[str, Any] = {"type": "string"}
        if self.description:
            schema["description"] = self.description
        if self.choices:
            schema["enum"] = list(self.choices)
        return schema


def arguments_of(kept: Any) -> tuple[TextArgument, ...]:
    """The arguments of a row.

    Raises:
        PromptError: they are not what this module writes there.
    """
    if not isinstance(kept, list) or not all(isinstance(one, Mapping) for one in kept):
        raise PromptError(_("The arguments are no list of names."))
    found = tuple(_argument(one) for one in kept)
    names = [one.name for one in found]
    if len(names) > MAX_ARGUMENTS:
        raise PromptError(_("More than %(n)d arguments.") % {"n": MAX_ARGUMENTS})
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PromptError(_("There are two arguments “%(name)s”.") % {"name": twice})
    return found


def _argument(kept: Mapping[str, Any]) -> TextArgument:
    name, description = kept.get("name"), kept.get("description", "")
    choices = kept.get("choices", [])
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > MAX_NAME_CHARACTERS:
        raise PromptError(
            _(
                "“%(name)s” is no name for an argument: use a letter, then letters, digits and "
                "underscores."
            )
            % {"name": str(name)[:40]}
        )
    if name in RESERVED:
        raise PromptError(_("“%(name)s” is a word of conditions.") % {"name": name})
    if not isinstance(description, str) or not isinstance(choices, list):
        raise PromptError(_("The argument “%(name)s” cannot be read.") % {"name": name})
    if len(choices) > MAX_CHOICES or not all(isinstance(one, str) and one for one in choices):
        raise PromptError(
            _("The choices of “%(name)s” are at most %(n)d texts, none of them empty.")
            % {"name": name, "n": MAX_CHOICES}
        )
    return TextArgument(
        name=name,
        description=description,
        required=kept.get("required") is True,
        choices=tuple(dict.fromkeys(choices)),
    )


class TextArguments:
    """Checks that texts were given, the required ones among them, each one of its choices.

    An empty text is an argument that was left out: hosts send the fields of a form.
    """

    def __init__(self, arguments: Sequence[TextArgument]) -> None:
        self._arguments = {one.name: one for one in arguments}
        self.json_schema: dict[str, Any] = {
            "type": "object",
            "properties": {one.name: one.schema for one in arguments},
            "additionalProperties": False,
        }
        if required := [one.name for one in arguments if one.required]:
            self.json_schema["required"] = required

    def parse(self, raw: bytes) -> dict[str, Any]:
        """The values by name.

        Raises:
            InvalidArguments: the caller can repair them.
        """
        given = decode_arguments(raw)
        problems = [
            *(unknown_argument(name, self._arguments) for name in given if self._is_unknown(name)),
            *(
                Problem(path=one.name, message="is required")
                for one in self._arguments.values()
                if one.required and given.get(one.name, "") == ""
            ),
            *(
                problem
                for name, value in given.items()
                if not self._is_unknown(name) and (problem := self._problem(name, value))
            ),
        ]
        if problems:
            raise InvalidArguments(problems)
        return {name: value for name, value in given.items() if value != ""}

    def _is_unknown(self, name: str) -> bool:
        return name not in self._arguments

    def _problem(self, name: str, value: Any) -> Problem | None:
        choices = self._arguments[name].choices
        if not isinstance(value, str):
            return Problem(path=name, value=value, message="must be a string")
        if len(value) > MAX_VALUE_CHARACTERS:
            message = f"must have at most {MAX_VALUE_CHARACTERS} characters"
            return Problem(path=name, message=message)
        if value and choices and value not in choices:
            listed = ", ".join(map(quote, choices))
            return Problem(path=name, value=value, message=f"must be one of {listed}")
        return None


def suggestions(choices: Sequence[str], typed: str) -> list[str]:
    """The choices that fit what was typed, those that begin with it first."""
    wanted = typed.casefold()
    fitting = [one for one in choices if wanted in one.casefold()]
    return sorted(fitting, key=lambda one: not one.casefold().startswith(wanted))
