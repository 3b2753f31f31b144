"""Arguments declared by the signature of a function, validated by pydantic.

Nothing about types is written by hand here: the parameters become the fields of a `TypedDict`,
which allows every name (`copy`, `schema`, `_x` are taken in a model class), and pydantic reads the
JSON text directly. Everything is compiled once, when the function is declared.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from inspect import Parameter
from typing import Annotated, Any, get_args, get_origin

from django.core.exceptions import ImproperlyConfigured
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError
from typing_extensions import TypedDict

from mcp_django.schema.arguments import InvalidArguments, Problem
from mcp_django.schema.decoding import decode_arguments, drop_nulls, is_empty
from mcp_django.schema.generator import BASE64, json_schema_of, reason_of
from mcp_django.schema.header import Header
from mcp_django.schema.output import OutputAdapter, OutputMismatch, output_adapter
from mcp_django.schema.portable import portable_input
from mcp_django.schema.portable import strict as strict_dialect
from mcp_django.schema.problems import explain
from mcp_django.schema.references import inline
from mcp_django.schema.signature import (
    AnyCallable,
    DeclaredParameter,
    name_of,
    positional_names,
    read_parameters,
    shown,
)
from mcp_django.schema.structure import Schema, walk

__all__ = ["Header", "OutputAdapter", "OutputMismatch", "SignatureArguments", "output_adapter"]

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, **BASE64)
_PATH_FORMATS = frozenset({"path", "file-path", "directory-path"})
_NOT_BUILDABLE = (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError)

# Shorter numbers pass through a float unchanged: IEEE 754 keeps 15 significant digits.
_MAYBE_INEXACT = re.compile(rb"[\d.]{16}|\d[eE][+-]?\d")


class SignatureArguments:
    """Reads arguments as the parameters of a function ask for them.

    With `strict`, the published schema is in the strict dialect, where `null` stands for an
    argument left out.
    """

    def __init__(
        self, function: AnyCallable, *, skip: Iterable[str] = frozenset(), strict: bool = False
    ) -> None:
        self._positional = positional_names(function)
        self._adapter, shape = _build(function, read_parameters(function, skip=skip))
        try:
            self._shape = inline(shape)
            portable = portable_input(self._shape)
            self.json_schema = strict_dialect(portable) if strict else portable
        except ValueError as exc:
            raise ImproperlyConfigured(f"{name_of(function)}: {exc}") from exc
        _refuse_paths(function, self._shape)
        self._has_decimals = any(
            member.get("format") == "decimal" for _, member in walk(self._shape)
        )

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return every argument under the name of its parameter, defaults included.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        text = b"{}" if is_empty(raw) else self._prepare(raw)
        try:
            arguments: dict[str, Any] = self._adapter.validate_json(text)
        except ValidationError as exc:
            data = decode_arguments(text, parse_float=float)
            raise InvalidArguments(explain(exc, data, self._shape)) from exc
        except OverflowError as exc:
            # Pydantic computes a duration, or the moment of a number, beyond what Python can hold.
            problem = Problem(path="", message=f"a value is too large: {exc}")
            raise InvalidArguments([problem]) from exc
        return arguments

    def bind(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments with which to call the function.

        `values` holds what `parse` returned and what the caller adds for skipped parameters.
        """
        named = dict(values)
        return tuple(named.pop(name) for name in self._positional), named

    def _prepare(self, raw: bytes) -> bytes:
        """Rewrite what pydantic would take differently from how it was meant."""
        is_inexact = self._has_decimals and _MAYBE_INEXACT.search(raw) is not None
        if b"null" not in raw and not is_inexact:
            return raw
        arguments = decode_arguments(raw, parse_float=_exact if is_inexact else float)
        return json.dumps(drop_nulls(arguments, self._shape, self._shape)).encode()


def _exact(text: str) -> float | str:
    """Return a number as its own text where a float would round it; a decimal takes both."""
    value = float(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == Decimal(text) else text


def _build(
    function: AnyCallable, parameters: Sequence[DeclaredParameter]
) -> tuple[TypeAdapter[dict[str, Any]], Schema]:
    try:
        return _compile(parameters)
    except _NOT_BUILDABLE as exc:
        culprit = next((one for one in parameters if not _is_buildable(one)), None)
        what = f"{culprit.name!r} as {shown(culprit.hint)}" if culprit else "its parameters"
        reason = reason_of(exc)
        raise ImproperlyConfigured(
            f"{name_of(function)} declares {what}, for which there is no JSON: {reason}. Take "
            "strings, numbers, lists, dataclasses or pydantic models, and of a database object "
            "its key."
        ) from exc


def _is_buildable(parameter: DeclaredParameter) -> bool:
    try:
        _compile([parameter])
    except _NOT_BUILDABLE:
        return False
    return True


def _compile(
    parameters: Sequence[DeclaredParameter],
) -> tuple[TypeAdapter[dict[str, Any]], Schema]:
    fields = {one.name: _annotation(one) for one in parameters}
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(_typed_dict(fields))
    return adapter, json_schema_of(adapter, "validation")


def _typed_dict(fields: dict[str, Any]) -> Any:
    create: Any = TypedDict
    arguments = create("Arguments", fields)
    # pydantic passes it on to dataclasses and to other TypedDicts inside, not to models.
    arguments.__pydantic_config__ = _CONFIG
    return arguments


def _annotation(parameter: DeclaredParameter) -> Any:
    hint, metadata = parameter.hint, []
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
    # A plain string is a description, and one given to `Field` outranks it.
    words = [Field(description=item) for item in metadata if isinstance(item, str)]
    rules = [item for item in metadata if not isinstance(item, str)]
    if parameter.default is Parameter.empty:
        fallback = []
    elif isinstance(parameter.default, FieldInfo):
        fallback = [parameter.default]
    else:
        fallback = [Field(default=parameter.default)]
    return Annotated[(hint, *words, *rules, *fallback)] if words or rules or fallback else hint


def _refuse_paths(function: AnyCallable, shape: Schema) -> None:
    for path, member in walk(shape):
        if member.get("format") in _PATH_FORMATS:
            raise ImproperlyConfigured(
                f"{name_of(function)} takes a file system path at {'/'.join(map(str, path))}. A "
                "path chosen by a model can lead anywhere; take a str and open it through a "
                "Django storage, which keeps it inside its own directory."
            )
