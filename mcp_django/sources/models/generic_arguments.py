"""The arguments of the generic tools: which model, and what its own tool is to be given.

They are read twice: here for their shape, and then by the arguments of the model's tool, which know
its filters and fields. What those say is told under the names that the caller used.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from mcp_django.auth.principal import Principal, anonymous
from mcp_django.core.tool import Tool
from mcp_django.execution.policy import admit, visible
from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    InvalidArguments,
    Problem,
    quote,
    unknown_argument,
)
from mcp_django.schema.portable import portable_input
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import decode_arguments
from mcp_django.sources.models.generic import Member
from mcp_django.sources.models.generic_shapes import Shape

Raws = dict[str, bytes]

_FIRST = re.compile(r"[^.\[]*")
_NUMBER = re.compile(rb"-?\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericCall:
    """The model's own tool, and its arguments as it has read them."""

    tool: Tool
    arguments: Mapping[str, Any]


class GenericArguments:
    """Reads the arguments of a generic tool; without a caller there is no model to choose."""

    def __init__(
        self,
        shape: Shape,
        members: Mapping[str, Member],
        *,
        operation: str = "",
        principal: Principal | None = None,
    ) -> None:
        self._shape = shape
        self._members = members
        self._operation = operation
        self._principal = principal

    def for_caller(self, principal: Principal) -> GenericArguments:
        """The arguments with the models that this caller may see."""
        return GenericArguments(
            self._shape, self._members, operation=self._operation, principal=principal
        )

    @property
    def json_schema(self) -> Schema:
        """The schema, naming the models that the caller may see; all of them without one."""
        model: Schema = {"type": "string", "enum": self._names()}
        return portable_input(
            {
                "type": "object",
                "properties": {"model": model, **self._shape.properties},
                "required": ["model", *self._shape.required],
                "additionalProperties": False,
            }
        )

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the ``call`` to make, or the ``member`` to describe.

        Raises:
            InvalidArguments: the model can repair the call.
            InsufficientScope: the caller may, the credential may not.
        """
        if self._principal is None:
            return self.for_caller(anonymous()).parse(raw)
        pieces = _members_of(raw)
        if problems := list(self._shape_problems(pieces)):
            raise InvalidArguments(problems[:MAX_KEPT_PROBLEMS])
        member = self._member(json.loads(pieces.pop("model")))
        if not self._operation:
            return {"member": member}
        tool = member.tools[self._operation]
        admit(self._principal, tool)
        return {"call": _Translation(self._shape, member, tool).call(pieces)}

    def _shape_problems(self, pieces: Raws) -> Iterator[Problem]:
        known = ["model", *self._shape.properties]
        for name in pieces:
            if name not in known:
                yield unknown_argument(name, known)
        for name in ("model", *self._shape.required):
            if name not in pieces:
                yield Problem(path=name, message="is required")

    def _member(self, name: Any) -> Member:
        """The model of this name; one that is hidden answers like one that does not exist."""
        names = self._names()
        if name in names:
            return self._members[name]
        close = difflib.get_close_matches(str(name), names, n=1)
        hint = f"; did you mean {quote(close[0])}?" if close else ""
        known = ", ".join(names)
        raise InvalidArguments(
            [Problem(path="model", value=name, message=f"must be one of {known}{hint}")]
        )

    def _names(self) -> list[str]:
        return sorted(name for name, one in self._members.items() if self._shows(one))

    def _shows(self, member: Member) -> bool:
        if self._principal is None:
            return True
        if not self._operation:
            return bool(member.visible(self._principal))
        return visible(self._principal, member.tools[self._operation])


class _Translation:
    """From the arguments of a generic tool to those of the model's."""

    def __init__(self, shape: Shape, member: Member, tool: Tool) -> None:
        self._shape = shape
        self._member = member
        self._tool = tool
        self._taken: Mapping[str, Schema] = tool.arguments.json_schema["properties"]
        self._key = member.declaration.lookup.name if shape.has_key else ""

    def call(self, pieces: Raws) -> GenericCall:
        """The call that is meant.

        Raises:
            InvalidArguments: the model's tool would not take it.
        """
        raw = _joined(self._translated(pieces))
        try:
            arguments = self._tool.arguments.parse(raw)
        except InvalidArguments as exc:
            raise InvalidArguments([self._placed(one) for one in exc.problems]) from exc
        return GenericCall(tool=self._tool, arguments=arguments)

    def _translated(self, pieces: Raws) -> Raws:
        found: Raws = {}
        problems: list[Problem] = []
        for name, piece in pieces.items():
            if name == "key" and self._shape.has_key:
                found[self._key] = self._as_key(piece)
            elif name == self._shape.within:
                found |= self._inner(piece)
            elif name in self._taken:
                found[name] = piece
            else:
                message = f"{self._member.name} has none; leave it out"
                problems.append(Problem(path=name, value=json.loads(piece), message=message))
        if problems:
            raise InvalidArguments(problems)
        return found

    def _inner(self, piece: bytes) -> Raws:
        within = self._shape.within
        if not piece.startswith(b"{"):
            value = json.loads(piece)
            raise InvalidArguments([Problem(path=within, value=value, message="must be an object")])
        pieces = _raws(piece)
        known = [one for one in self._taken if one not in self._shape.plain and one != self._key]
        unknown = [name for name in pieces if name not in known]
        if unknown:
            raise InvalidArguments(
                [unknown_argument(name, known, path=within) for name in unknown[:MAX_KEPT_PROBLEMS]]
            )
        return pieces

    def _as_key(self, piece: bytes) -> bytes:
        """A key that looks like a number is often sent as one."""
        is_text = self._taken[self._key].get("type") == "string"
        return b'"%b"' % piece if is_text and _NUMBER.match(piece) else piece

    def _placed(self, problem: Problem) -> Problem:
        """The problem where the caller finds it."""
        found = _FIRST.match(problem.path)
        first = found.group() if found else ""
        if self._key and first == self._key:
            return replace(problem, path=f"key{problem.path[len(first) :]}")
        if not first or first in self._shape.plain:
            return problem
        return replace(problem, path=f"{self._shape.within}.{problem.path}")


def _members_of(raw: bytes) -> Raws:
    """The arguments, each as it was written; ``null`` stands for one that is left out."""
    if not decode_arguments(raw):
        return {}
    return {name: one for name, one in _raws(raw).items() if one != b"null"}


def _raws(raw: bytes) -> Raws:
    """The members of an object, undecoded: a number that is read and written loses digits."""
    try:
        found = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as exc:
        problem = Problem(path="", message=f"the arguments are not valid JSON: {exc}")
        raise InvalidArguments([problem]) from exc
    return {name: bytes(one).strip() for name, one in found.items()}


def _joined(pieces: Raws) -> bytes:
    return b"{%b}" % b",".join(b"%b:%b" % (quote(n).encode(), one) for n, one in pieces.items())
