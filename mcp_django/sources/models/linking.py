"""Keys of related rows in a form: only those that the caller may know of.

Where the related model is registered on the same server its row gate decides. A key outside of it
is refused in the words for one that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from django import forms
from django.db.models import Model, Q, QuerySet

from mcp_django.core.context import Context
from mcp_django.schema.arguments import Problem
from mcp_django.sources.models.related import gate, limited
from mcp_django.sources.models.repair import related_noun

MAX_KEYS = 1000
# The longest integer that a driver takes.
MAX_INTEGER = 2**63 - 1


def limit_keys(fields: Mapping[str, Any], names: Iterable[str], server: Any, ctx: Context) -> None:
    """Narrow the rows that fields of a form or serializer accept to what the caller may see."""
    for field in _choosing(fields[name] for name in names if name in fields):
        field.queryset = limited(field.queryset.all(), server, ctx)


def _choosing(fields: Iterable[Any]) -> Iterator[Any]:
    """The fields that choose among rows, those of nested serializers, too."""
    for field in fields:
        inner = getattr(field, "child_relation", None) or getattr(field, "child", None)
        if inner is not None:
            yield from _choosing([inner])
        elif hasattr(field, "fields") and not isinstance(field, forms.Field):
            yield from _choosing(field.fields.values())
        elif getattr(field, "queryset", None) is not None:
            yield field


def keep_hidden_links(
    values: MutableMapping[str, Any], instance: Model, server: Any, ctx: Context
) -> None:
    """Leave the links to rows that the caller cannot see, as nobody removes what is hidden.

    A list of keys replaces the links of an object, and could name the visible ones only.
    """
    for name in {field.name for field in instance._meta.many_to_many} & {*values}:
        linked: QuerySet[Any] = getattr(instance, name).all()
        visible = gate(server, linked.model, ctx, among=Q(pk__in=linked.values("pk")))
        if visible is not None:
            hidden = linked.exclude(pk__in=visible.using(linked.db).values("pk"))
            values[name] = [*values[name], *hidden]


def key_problems(field: Any, name: str, value: Any) -> Iterator[Problem]:
    """What is wrong with keys that a database would stumble over."""
    if not isinstance(field, forms.ModelMultipleChoiceField) or not isinstance(value, list):
        return
    if len(value) > MAX_KEYS:
        yield Problem(path=name, message=f"has {len(value)} keys; send at most {MAX_KEYS}")
        return
    noun = related_noun(field)
    for index, one in enumerate(value):
        if _is_out_of_range(one):
            yield Problem(path=f"{name}[{index}]", value=one, message=f"there is no such {noun}")


def _is_out_of_range(key: Any) -> bool:
    text = str(key).strip().lstrip("+-")
    # A longer text is no number that Python reads.
    return text.isdecimal() and (len(text) > 19 or int(text) > MAX_INTEGER)
