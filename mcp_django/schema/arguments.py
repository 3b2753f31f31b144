"""The interface of all argument sources, and the validation errors that they raise.

A language model reads a validation error and then calls again. The error therefore contains the
field, the rule in plain words and the invalid value, and nothing else: no class names, no URLs of
error pages, no values of other fields (MCP 2026-07-28, "Tools", error handling).

`Header` marks an argument that clients repeat in a header.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from mcp_django.protocol.errors import MCPDjangoError
from mcp_django.protocol.headers import HEADER_KEYWORD, TOKEN
from mcp_django.protocol.jsonrpc import encode, is_empty_array
from mcp_django.protocol.text import clip, nearest

MAX_SHOWN_CHARACTERS = 80
MAX_SHOWN_PROBLEMS = 20
# Further problems are not processed, because a caller could send a million invalid values.
MAX_KEPT_PROBLEMS = 1000


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()
"""The value of a problem that does not concern a value."""


class ArgumentSource(Protocol):
    """The schema and the parser for the arguments of a component."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """The schema to publish, in the portable subset."""
        ...

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return keyword arguments for the function from the JSON text of an object.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationProblem:
    """One error in the arguments or the result."""

    path: str
    """A path such as `lines[2].price`, or empty for the arguments as a whole."""
    value: Any = MISSING
    """The value that was sent, or `MISSING` if it is absent or does not help."""
    message: str
    """The rule without the name of the field, such as `must be greater than 0`."""

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        return text if self.value is MISSING else f"{text} (got {to_short_json(self.value)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownNameProblem(ValidationProblem):
    """A name that is not declared; `str()` adds the most similar declared name."""

    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        # A comparison takes milliseconds, and a caller could send a thousand names.
        is_short = len(self.name) <= MAX_SHOWN_CHARACTERS
        close = nearest(self.name, self.known) if is_short else None
        hint = f"; did you mean {to_json_text(close)}?" if close is not None else ""
        return f"{ValidationProblem.__str__(self)}{hint}"


class InvalidArguments(MCPDjangoError):
    """The arguments are not valid; the text has one line for each problem."""

    def __init__(self, problems: Iterable[ValidationProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__(format_problems(self.problems))


def invalid_argument(path: str, message: str, *, value: Any = MISSING) -> InvalidArguments:
    """Return the exception for a single problem."""
    return InvalidArguments([ValidationProblem(path=path, value=value, message=message)])


def format_problems(problems: Sequence[ValidationProblem]) -> str:
    """Return one line for each problem, up to `MAX_SHOWN_PROBLEMS`, and the number of others."""
    lines = [str(problem) for problem in problems[:MAX_SHOWN_PROBLEMS]]
    other_count = len(problems) - MAX_SHOWN_PROBLEMS
    if other_count > 0:
        lines.append(f"and {other_count} more")
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


def to_json_text(value: Any) -> str:
    """Return a value as JSON, the format in which the model wrote it."""
    return json.dumps(value, ensure_ascii=False, default=str)


def to_short_json(value: Any) -> str:
    """Return the start of a value as JSON, without encoding the rest, which may be megabytes."""
    text = ""
    for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
        text += piece
        if len(text) > MAX_SHOWN_CHARACTERS:
            return clip(text, limit=MAX_SHOWN_CHARACTERS)
    return text


def unknown_argument_problem(
    name: str, known_names: Iterable[str], *, path: str = ""
) -> ValidationProblem:
    """Return the problem for a name that is not declared."""
    names = tuple(known_names)
    noun = "member" if path else "argument"
    return UnknownNameProblem(
        path=path,
        message=f"unknown {noun} {to_json_text(name)}; known: {', '.join(names) or '(none)'}",
        name=name,
        known=names,
    )


def with_objects(raw: bytes, schema: Any) -> bytes:
    """Return raw JSON with an empty object in place of each empty array that has to be an object.

    PHP clients send such arrays. ``schema`` is portable. An array is replaced only where the schema
    allows an object and no array; values that it describes with a reference are not changed.

    Raises:
        msgspec.MsgspecError: the text cannot be decoded.
    """
    if not isinstance(schema, Mapping):
        return raw
    alternatives = [
        alternative
        for alternative in schema.get("anyOf", (schema,))
        if isinstance(alternative, Mapping)
    ]
    kinds = [alternative.get("type") for alternative in alternatives]
    # None for an alternative without a type, or with several types.
    types = [kind if isinstance(kind, str) else None for kind in kinds]
    takes_only_object = types.count("object") == 1 and not {"array", None} & {*types}
    if takes_only_object and is_empty_array(raw):
        return b"{}"
    if raw.startswith(b"{") and takes_only_object:
        described = alternatives[types.index("object")].get("properties", {})
        members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        meant = {
            name: msgspec.Raw(with_objects(bytes(value), described.get(name)))
            for name, value in members.items()
        }
        return raw if meant == members else encode(meant)
    if raw.startswith(b"[") and types == ["array"]:
        items = msgspec.json.decode(raw, type=list[msgspec.Raw])
        fixed = [
            msgspec.Raw(with_objects(bytes(element), alternatives[0].get("items")))
            for element in items
        ]
        return raw if fixed == items else encode(fixed)
    return raw


@dataclass(frozen=True, slots=True)
class Header:
    """Marks an argument to be repeated in a header: `region: Annotated[str, Header("Region")]`.

    Clients then also send it as `Mcp-Param-<name>`, so that a gateway can route a call without
    reading its body (MCP 2026-07-28, "x-mcp-header"). Every intermediary between client and server
    can read the value; do not use it for secrets or personal data. An integer is published with the
    bounds ±(2^53-1); a call with an integer outside them is rejected.
    """

    name: str

    def __post_init__(self) -> None:
        # ``header_parameters`` checks on the whole schema which arguments may have a header.
        if not TOKEN.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} cannot be part of a header name; use letters, digits and hyphens."
            )

    def __get_pydantic_json_schema__(
        self, schema: Any, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), HEADER_KEYWORD: self.name}


class OutputMismatch(MCPDjangoError):
    """A function's result does not match its declaration: a bug of the site, not of the caller."""

    def __init__(self, problems: Iterable[ValidationProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            f"The result does not match its declaration.\n{format_problems(self.problems)}"
        )
