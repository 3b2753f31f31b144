"""Completion of the variables of a URI, from what the caller may see."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import CharField, Q, QuerySet
from django.db.models.functions import Cast

from mcp_django.core import declare
from mcp_django.core.component import Completion, Component, ComponentFunction, Prompt
from mcp_django.core.context import Context
from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.guarding import sees_all
from mcp_django.sources.models.listing import present, visible
from mcp_django.sources.models.paths import FieldPath
from mcp_django.sources.models.values import without_nul
from mcp_django.sources.models.variables import read, value_of

if TYPE_CHECKING:
    from mcp_django.sources.models.resource import ModelResource

# The protocol's own limit, and one more to know that there are more (CMP-2).
MAX_SUGGESTIONS = 101
MAX_TYPED = 200
# The widest of what is completed by its text: a number of 64 bits, a date.
TEXT = CharField(max_length=40)
HEX_DIGITS = 32


def completions(declaration: ModelResource[Any], component: Component) -> Iterator[Completion]:
    """A completion of each variable of a template or prompt."""
    for name in declaration.variables.paths:
        yield Completion(
            kind="prompt" if isinstance(component, Prompt) else "resource template",
            key=component.key,
            argument=name,
            function=_function(declaration, name),
        )


def _function(declaration: ModelResource[Any], name: str) -> ComponentFunction:
    """A function whose first parameter is the typed value and whose others are the chosen ones."""
    made = declare.function(partial(suggestions, declaration, name), name=name)
    names = [name, *(one for one in declaration.variables.paths if one != name)]
    names.append(declare.CONTEXT)
    keyword = inspect.Parameter.KEYWORD_ONLY
    made.function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(one, keyword) for one in names]
    )
    return made


def suggestions(
    declaration: ModelResource[Any], name: str, ctx: Context, typed: Mapping[str, str]
) -> list[str]:
    """The values of a variable that begin as typed, of objects that the caller may see."""
    variables = declaration.variables
    path = variables.paths[name]
    wanted = present([path]) & _chosen(variables.paths, name, typed)
    beginning = _beginning(path, typed[name])
    if beginning is None:
        return []
    rows = beginning(declaration.rows(ctx)).filter(wanted).order_by(path.expression)
    return _shown(_values(declaration, ctx, rows, path))


def _values(
    declaration: ModelResource[Any], ctx: Context, rows: QuerySet[Any], path: FieldPath
) -> list[Any]:
    if sees_all(declaration, ctx):
        return list(rows.values_list(path.expression, flat=True).distinct()[:MAX_SUGGESTIONS])
    return [
        value_of(obj, path)
        for obj in visible(declaration, ctx, rows, MAX_SUGGESTIONS, paths=[path])
    ]


def _shown(values: list[Any]) -> list[str]:
    return [text for text in dict.fromkeys(map(str, values)) if text]


def _chosen(paths: Mapping[str, FieldPath], name: str, typed: Mapping[str, str]) -> Q:
    """What was chosen for the other variables; what no object can have matches none."""
    wanted = Q()
    for other, text in typed.items():
        if other == name or not text:
            continue
        try:
            wanted &= Q(**{paths[other].expression: read(paths[other], text)})
        except ValueError:
            return Q(pk__in=[])
    return wanted


def _beginning(path: FieldPath, typed: str) -> Any:
    """The rows whose value begins so; ``None`` where none can."""
    kind = Column(path.column).kind
    try:
        without_nul(typed)
    except ValueError:
        return None
    if len(typed) > MAX_TYPED:
        return None
    if not typed:
        return lambda rows: rows
    if kind == "text":
        return lambda rows: rows.filter(**{f"{path.expression}__istartswith": typed})
    if kind == "uuid":
        between = _uuids(typed)
        return between and (lambda rows: rows.filter(**{f"{path.expression}__range": between}))
    text = Cast(path.expression, TEXT)
    return lambda rows: rows.alias(typed_text=text).filter(typed_text__startswith=typed)


def _uuids(typed: str) -> tuple[UUID, UUID] | None:
    """The first and the last UUID that begin so: databases keep them in different forms."""
    digits = typed.replace("-", "")
    try:
        first, last = UUID(digits.ljust(HEX_DIGITS, "0")), UUID(digits.ljust(HEX_DIGITS, "f"))
    except ValueError:
        return None
    return (first, last) if str(last).startswith(typed.lower()) else None
