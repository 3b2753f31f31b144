"""The arguments of a write tool: which object, what to write, and whether to try it only.

They are read in two steps. Their names and kinds are checked before the call is admitted to run;
values are validated within its transaction, by a form or serializer that knows the object, since
the rules may look at rows and at who is asking.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field as Rule

from mcp_django.core.context import Context
from mcp_django.core.declare import Argument, arguments
from mcp_django.schema.arguments import MAX_KEPT_PROBLEMS, InvalidArguments, Problem, format_path
from mcp_django.schema.portable import portable_input
from mcp_django.schema.structure import Path, Schema
from mcp_django.schema.values import decode_arguments, drop_nulls, unknown_members
from mcp_django.sources.models.keys import Key
from mcp_django.sources.models.values import without_nul

PREVIEW = "preview"
CLEAR = "clear"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCall:
    """What a caller wants written.

    ``key`` names the object, ``clear`` the fields to be emptied: ``null`` cannot say it, as some
    clients send it for every argument that they leave out.
    """

    values: Mapping[str, Any]
    key: Any = None
    clear: Sequence[str] = ()
    preview: bool = False

    @property
    def written(self) -> list[str]:
        """The names of the fields that the caller spoke of."""
        return [*self.values, *self.clear]


class Previewing:
    """The dry run of a write tool, as ``Tool.dry_run`` has it."""

    def is_one(self, arguments: Mapping[str, Any]) -> bool:
        """Whether it is the preview that is called for."""
        call: WriteCall = arguments["call"]
        return call.preview

    def of(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of the preview."""
        return {**arguments, "call": replace(arguments["call"], preview=True)}


class Inputs(Protocol):
    """What validates the values: a form, or a serializer."""

    properties: dict[str, Schema]
    required: list[str]
    emptiable: list[str]

    def look_over(self, values: Mapping[str, Any]) -> Iterator[Problem]:
        """What is wrong with the values at a glance."""
        ...

    def bind(self, ctx: Context, call: WriteCall, instance: Any) -> Any:
        """The valid form or serializer, for a new object or an existing one.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        ...


class WriteArguments:
    """Reads the arguments of a write tool; the function gets one ``call``."""

    def __init__(
        self, of: str, *, key: Key | None, inputs: Inputs | None, files: Collection[str] = ()
    ) -> None:
        self._inputs = inputs
        self._key = key
        written = inputs.properties if inputs is not None else {}
        # What is shown and cannot be written is worth a word of its own.
        self._files = [name for name in files if name not in written]
        emptiable = inputs.emptiable if inputs is not None and key is not None else []
        self._head = arguments(of, _head(key, emptiable))
        head = self._head.json_schema
        own = dict(head["properties"])
        last = {name: own.pop(name) for name in (CLEAR, PREVIEW) if name in own}
        is_new = key is None and inputs is not None
        self._shape: Schema = {
            "type": "object",
            "properties": {**own, **written, **last},
            "required": [
                *head.get("required", ()),
                *(inputs.required if inputs is not None and is_new else ()),
            ],
            "additionalProperties": False,
        }
        self.json_schema = portable_input(self._shape)

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the ``call``; does not query the database.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        values = drop_nulls(decode_arguments(raw), self._shape, self._shape)
        if problems := [*islice(self._unknown(values), MAX_KEPT_PROBLEMS)]:
            raise InvalidArguments(problems)
        known = self._head.json_schema["properties"]
        head = {name: values.pop(name) for name in known if name in values}
        problems = [*islice(_unstorable(values, ()), MAX_KEPT_PROBLEMS)]
        if self._inputs is not None and not problems:
            problems += self._inputs.look_over(values)
        try:
            read = self._head.parse(json.dumps(head).encode())
        except InvalidArguments as exc:
            raise InvalidArguments([*exc.problems, *problems]) from exc
        problems += _contradictions(values, read.get(CLEAR, ()))
        if problems:
            raise InvalidArguments(problems)
        call = WriteCall(
            key=read[self._key.name] if self._key is not None else None,
            values=values,
            clear=tuple(dict.fromkeys(read.get(CLEAR, ()))),
            preview=read[PREVIEW],
        )
        return {"call": call}

    def _unknown(self, values: dict[str, Any]) -> Iterator[Problem]:
        """Names that are no argument; with them, the key that may have been meant by one."""
        known = {name: one for name, one in values.items() if name not in self._files}
        for name in values.keys() - known.keys():
            yield Problem(path=name, message="is a file, which cannot be written here")
        unknown = [*unknown_members(known, self._shape)]
        yield from unknown
        if unknown and self._key is not None and self._key.name not in values:
            yield Problem(path=self._key.name, message="is required")


def _head(key: Key | None, emptiable: Sequence[str]) -> dict[str, Argument]:
    """What is not a value of a field."""
    named: dict[str, Argument] = {}
    if key is not None:
        named[key.name] = Argument(annotation=key.annotation, required=True)
    if emptiable:
        named[CLEAR] = Argument(
            annotation=Annotated[list[Literal[tuple(emptiable)]], Rule(max_length=len(emptiable))],  # type: ignore[misc]  # known when it runs
            description="Fields to empty.",
            default=[],
        )
    named[PREVIEW] = Argument(
        annotation=bool,
        description="True answers with what would change, and changes nothing.",
        default=False,
    )
    return named


def _contradictions(values: Mapping[str, Any], clear: Sequence[str]) -> Iterator[Problem]:
    for name in clear:
        if name in values:
            yield Problem(path=name, message="is to be emptied and has a value; send one of them")


def _unstorable(value: Any, path: Path) -> Iterator[Problem]:
    """Text that no database keeps, at any depth."""
    if isinstance(value, str):
        try:
            without_nul(value)
        except ValueError as exc:
            yield Problem(path=format_path(path), message=str(exc))
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from _unstorable(name, path)
            yield from _unstorable(member, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unstorable(item, (*path, index))
