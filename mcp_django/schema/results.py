"""Which declared results have structure that a client can rely on.

A dataclass has, a list has, and so have numbers, dates and choices. Text has not, since it would be
sent twice, and content blocks say themselves what they are.
"""

from __future__ import annotations

import dataclasses
import types
from collections import abc, deque
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin
from uuid import UUID

from django.db.models import Model
from pydantic import BaseModel
from typing_extensions import is_typeddict

from mcp_django.schema.jsonable import CONTENT_CLASSES

_COLLECTIONS = (list, tuple, set, frozenset, dict, deque)
_SCALARS = (int, float, Decimal, date, time, timedelta, UUID, Enum)
_LAZY = frozenset({abc.Iterable, abc.Iterator, abc.Generator, abc.Collection})
_ABSTRACT = _LAZY | {
    abc.Sequence,
    abc.MutableSequence,
    abc.Set,
    abc.MutableSet,
    abc.Mapping,
    abc.MutableMapping,
}


def has_structure(annotation: Any) -> bool:
    """Tell whether a result declared like this gets a schema."""
    return not _mentions_objects(annotation) and _is_structured(annotation)


def without_laziness(annotation: Any) -> Any:
    """Return `list[X]` for what a generator of `X` declares."""
    hint = _bare(annotation)
    origin = get_origin(hint) or hint
    if origin not in _LAZY:
        return annotation
    arguments = get_args(hint)
    return list[arguments[0]] if arguments else list  # type: ignore[valid-type]


def _is_structured(annotation: Any) -> bool:
    hint = _bare(annotation)
    origin = get_origin(hint) or hint
    if origin in {Union, types.UnionType}:
        members = [member for member in get_args(hint) if member is not type(None)]
        return all(_is_structured(member) for member in members)
    if origin in _ABSTRACT or is_typeddict(origin):
        return True
    if origin is Literal:
        return True
    if not isinstance(origin, type):
        return False
    if issubclass(origin, str):
        return issubclass(origin, Enum)
    known = (BaseModel, *_COLLECTIONS, *_SCALARS)
    return issubclass(origin, known) or dataclasses.is_dataclass(origin)


def _bare(annotation: Any) -> Any:
    """Return the type behind `Annotated`, `NewType` and a named alias."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__") and hasattr(annotation, "__type_params__"):
            annotation = annotation.__value__
        else:
            return annotation


def _mentions_objects(annotation: Any) -> bool:
    """Tell whether content blocks or model instances are among the values."""
    hint = _bare(annotation)
    if isinstance(hint, type) and issubclass(hint, (*CONTENT_CLASSES, Model)):
        return True
    return any(_mentions_objects(argument) for argument in get_args(hint))
