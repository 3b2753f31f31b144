"""What a form found wrong, in words by which a model can repair its call.

A message names the rule and what would be allowed. It never tells more of other rows than that a
value is taken, and never the name of a field that callers do not know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError

from mcp_django.schema.arguments import MISSING, Problem
from mcp_django.schema.problems import of_kind, one_of
from mcp_django.schema.structure import Schema

_BY_FORMAT = {
    "date": "must be a date like 2026-12-31",
    "date-time": "must be a date and time like 2026-12-31T23:59:00Z",
    "time": "must be a time like 23:59:00",
    "duration": "must be a duration like PT1H30M",
    "uuid": "must be a UUID",
    "decimal": "must be a decimal number",
    "email": "must be an e-mail address",
    "uri": "must be a URL",
}


# Whose value it is, and what it is, is nobody's business.
_HIDDEN = "something that you may not see does not allow it"


class ElsewhereError(ValidationError):
    """A complaint about a field that is not in the form."""

    def __init__(self, field: str, error: ValidationError) -> None:
        super().__init__(error.message, code=error.code, params=error.params)
        self.field = field


def problems_of(
    form: forms.BaseForm, sent: dict[str, Any], schemas: dict[str, Schema], known: Collection[str]
) -> Iterator[Problem]:
    """What is wrong with the arguments ``sent``; ``known`` are the names that callers may read."""
    for name, errors in form.errors.as_data().items():
        schema = schemas.get(name, {})
        is_shown = name in sent and not schema.get("writeOnly")
        for error in errors:
            field = form.fields.get(name)
            if isinstance(error, ElsewhereError):
                yield _elsewhere(error.field, error, known)
                continue
            yield Problem(
                path="" if name == NON_FIELD_ERRORS else name,
                value=sent[name] if is_shown else MISSING,
                message=_rule(error, field, schema, known),
            )


def problems_in(exc: ValidationError, known: Collection[str]) -> Iterator[Problem]:
    """What a model or a hook found wrong while it was saving."""
    if not hasattr(exc, "error_dict"):
        yield Problem(path="", message=" ".join(exc.messages).rstrip("."))
        return
    for name, errors in exc.error_dict.items():
        for error in errors:
            yield _elsewhere("" if name == NON_FIELD_ERRORS else name, error, known)


def once(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once: several hidden fields are one thing to the caller."""
    found: list[Problem] = []
    for problem in problems:
        if problem not in found:
            found.append(problem)
    return found


def _elsewhere(name: str, error: ValidationError, known: Collection[str]) -> Problem:
    if name and name not in known:
        return Problem(path="", message=_HIDDEN)
    return Problem(path=name, message=_rule(error, None, {}, known))


def _rule(
    error: ValidationError, field: forms.Field | None, schema: Schema, known: Collection[str]
) -> str:
    if error.code in {"required", "null", "blank"}:
        return "is required"
    if error.code in {"unique", "unique_together"}:
        return _taken(error, known)
    if isinstance(field, forms.ModelChoiceField) and error.code in {
        "invalid_choice",
        "invalid_pk_value",
    }:
        return _no_such_row(error, field)
    allowed = schema.get("enum") or schema.get("items", {}).get("enum")
    if error.code == "invalid_choice" and allowed:
        return one_of(allowed)
    if error.code == "invalid" and (words := _kind(schema)):
        return words
    return " ".join(error.messages).rstrip(".")


def _no_such_row(error: ValidationError, field: forms.ModelChoiceField[Any]) -> str:
    """A row that is hidden from the caller and one that does not exist answer alike."""
    noun = related_noun(field)
    if not isinstance(field, forms.ModelMultipleChoiceField):
        return f"there is no such {noun}"
    params = dict(error.params or {})
    return f"there is no {noun} {params.get('value', params.get('pk', ''))}"


def related_noun(field: forms.ModelChoiceField[Any]) -> str:
    """What a field chooses one of."""
    assert field.queryset is not None
    return str(field.queryset.model._meta.verbose_name)


def _taken(error: ValidationError, known: Collection[str]) -> str:
    together = dict(error.params or {}).get("unique_check", ())
    if len(together) < 2:
        return "is taken already, and has to be unique"
    if set(together) <= set(known):
        return f"this combination of {' and '.join(together)} is taken already"
    return "this combination of values is taken already"


def _kind(schema: Schema) -> str:
    if schema.get("format") in _BY_FORMAT:
        return _BY_FORMAT[schema["format"]]
    kind = schema.get("type")
    return of_kind(kind) if kind in {"integer", "number", "boolean"} else ""
