"""What every way of declaring arguments has in common: the interface, and how it refuses.

A refusal is read by a language model, which then calls again. It therefore names the field, the
rule in plain words and the value that broke it, and nothing else: no class names, no addresses of
error pages, no values of other fields (MCP 2026-07-28, "Tools", error handling).

`Header` marks an argument that clients repeat in a header.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Protocol

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from mcp_django.protocol.errors import MCPDjangoError
from mcp_django.protocol.headers import ANNOTATION, TOKEN

MAX_SHOWN_CHARACTERS = 80
MAX_SHOWN_PROBLEMS = 20
# More than this are not even looked at: a caller could send a million.
MAX_KEPT_PROBLEMS = 1000


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()
"""The value of a problem that is not about a value."""


class ArgumentSource(Protocol):
    """Where the arguments of a component come from."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """The schema to publish, in the portable subset."""
        ...

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return keyword arguments for the function, given the JSON text of an object.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to repair."""

    path: str
    """Dotted, with indexes in brackets: `lines[2].price`. Empty for the arguments as a whole."""
    value: Any = MISSING
    """What was sent, unless it is absent or says nothing."""
    message: str
    """The rule, without the name of the field in front: `must be greater than 0`."""

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        return text if self.value is MISSING else f"{text} (got {shorten(self.value)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownName(Problem):
    """A name that nobody declared; the nearest one is looked for when the problem is told."""

    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        # Comparing takes milliseconds, and a caller could send a thousand names.
        is_short = len(self.name) <= MAX_SHOWN_CHARACTERS
        nearest = get_close_matches(self.name, self.known, n=1) if is_short else []
        hint = f"; did you mean {quote(nearest[0])}?" if nearest else ""
        return f"{Problem.__str__(self)}{hint}"


class InvalidArguments(MCPDjangoError):
    """Arguments that do not fit; the text has one line for each problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(describe(self.problems))


def describe(problems: Sequence[Problem]) -> str:
    """Return one line for each problem; a thousand bad rows say nothing that twenty do not."""
    lines = [str(problem) for problem in problems[:MAX_SHOWN_PROBLEMS]]
    left = len(problems) - MAX_SHOWN_PROBLEMS
    if left > 0:
        lines.append(f"and {left} more")
    return "\n".join(lines)


def format_path(steps: Iterable[str | int]) -> str:
    """Return `lines[2].price` for `("lines", 2, "price")`."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def quote(value: Any) -> str:
    """Return a value as JSON, which is what the model wrote."""
    return json.dumps(value, ensure_ascii=False, default=str)


def shorten(value: Any) -> str:
    """Return the beginning of a value as JSON, without encoding megabytes of the rest."""
    text = ""
    for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
        text += piece
        if len(text) > MAX_SHOWN_CHARACTERS:
            return f"{text[: MAX_SHOWN_CHARACTERS - 1]}…"
    return text


def unknown_argument(name: str, known: Iterable[str], *, path: str = "") -> Problem:
    """Return the problem of a name that nobody declared."""
    names = tuple(known)
    noun = "member" if path else "argument"
    return UnknownName(
        path=path,
        message=f"unknown {noun} {quote(name)}; known: {', '.join(names) or '(none)'}",
        name=name,
        known=names,
    )


# The ``Header`` marker ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Header:
    """Sends an argument as `Mcp-Param-<name>` too: `region: Annotated[str, Header("Region")]`.

    A gateway can then route a call without reading its body (MCP 2026-07-28, "x-mcp-header"). The
    value is visible to everything between client and server; keep secrets and personal data out
    of it.
    """

    name: str

    def __post_init__(self) -> None:
        # Which arguments may have one is checked over the whole schema, by ``header_parameters``.
        if not TOKEN.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} cannot be part of a header name; take letters, digits and hyphens."
            )

    def __get_pydantic_json_schema__(
        self, schema: Any, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), ANNOTATION: self.name}
