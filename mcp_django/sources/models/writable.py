"""Which fields of a model a declaration lets callers write."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db.models import FileField, ManyToManyField, Model

# What an HTML form could not have either, or what Django fills itself.
_NOT_EDITABLE = "is not editable"


def writable_fields(declaration: Any) -> list[str]:
    """The names of the fields that callers may write: ``write_fields``, or what is exposed.

    Raises:
        ImproperlyConfigured: one of ``write_fields`` cannot be written through JSON, or none is
            left.
    """
    if declaration.write_fields is None:
        names = list(_exposed_and_writable(declaration))
    else:
        names = list(declaration.sequence("write_fields"))
        for name in names:
            problem = _problem(declaration.model, name)
            if problem:
                declaration.refuse(f"write_fields: {name!r} {problem}.")
    if not names:
        declaration.refuse("there is nothing to write; name fields of the model in write_fields.")
    return names


def _exposed_and_writable(declaration: Any) -> Iterator[str]:
    """The exposed fields that can be written; ``customer_id`` stands for ``customer``."""
    options = declaration.model._meta
    attnames = {f.attname: f.name for f in options.concrete_fields}
    for path in declaration.fields:
        name = attnames.get(path, path)
        if not _problem(declaration.model, name):
            yield name


def _problem(model: type[Model], name: str) -> str:
    """Why a field cannot be written, as the end of a sentence; empty when it can."""
    options = model._meta
    if "__" in name:
        return "belongs to another model; write_fields are the model's own"
    try:
        field: Any = options.get_field(name)
    except FieldDoesNotExist:
        known = [f.name for f in (*options.concrete_fields, *options.many_to_many)]
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; there are {', '.join(known)}"
        return f"is no field of {options.label}{hint}"
    # Whether links to many count as concrete depends on Django's version.
    if field.auto_created or not (field.concrete or isinstance(field, ManyToManyField)):
        return "is no column of the model; write it from the other side"
    if isinstance(field, FileField):
        return (
            "is a file, which JSON cannot carry; leave it out, or take its contents in a field of "
            "your own form (form = …)"
        )
    if isinstance(field, ManyToManyField) and not _is_plain(field):
        return (
            "has a model of its own between the two (through=…); expose that model, and write its "
            "rows"
        )
    if not field.editable or getattr(field, "generated", False):
        return _NOT_EDITABLE
    if field.formfield() is None:
        return "has no form field; name a form that has one (form = …)"
    return ""


def _is_plain(field: Any) -> bool:
    return bool(field.remote_field.through._meta.auto_created)
