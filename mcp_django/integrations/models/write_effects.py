"""Helpers for writes: preview (dry run), form errors, row locks and history.

A preview runs forms, hooks, ``save`` and signals as usual, inside transactions that are rolled
back, so ``on_commit`` callbacks never run. Side effects that a transaction cannot roll back (an
email, a file, a job that a signal enqueues immediately) do happen: as documented, they belong in
``on_commit``. Writes to another database during a preview are rejected, since they would persist.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from django import forms
from django.apps import apps
from django.core.exceptions import NON_FIELD_ERRORS, FieldDoesNotExist, ValidationError
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import ManyToManyField, Model

from mcp_django.components.context import Context
from mcp_django.exceptions import ToolError
from mcp_django.integrations.models.columns import has_own_manager
from mcp_django.schema.arguments import MISSING, ValidationProblem
from mcp_django.schema.problems import enum_rule, type_rule
from mcp_django.schema.structure import Schema

logger = logging.getLogger("mcp_django")

WRITE = re.compile(
    r"\s*(INSERT|UPDATE|DELETE|REPLACE|MERGE|CREATE|ALTER|DROP|TRUNCATE)\b", re.IGNORECASE
)

NOT_SHOWN = "not_shown"


@contextmanager
def roll_back_writes(alias: str) -> Iterator[None]:
    """Roll back the writes to a database at the end, and reject writes to other databases."""
    # The model's own database, the default one and those that are in a transaction. Transactions on
    # all databases would connect to databases that are not used.
    aliases = [
        connection.alias
        for connection in connections.all(initialized_only=True)
        if connection.in_atomic_block
    ]
    default = connections[DEFAULT_DB_ALIAS].settings_dict["ENGINE"]
    if default != "django.db.backends.dummy":
        # Change notifications wait for the commit of this database, unless the site uses another.
        aliases.append(DEFAULT_DB_ALIAS)
    reversible = list(dict.fromkeys([alias, *aliases]))
    with ExitStack() as stack:
        for name in connections:
            if name not in reversible:
                stack.enter_context(connections[name].execute_wrapper(_refuse_writes))
        for name in reversible:
            stack.enter_context(transaction.atomic(using=name))
        yield
        for name in reversible:
            transaction.set_rollback(True, using=name)


def _refuse_writes(
    execute: Callable[..., Any],
    sql: str,
    params: Any,
    many: bool,  # noqa: FBT001 - Django's order
    context: Mapping[str, Any],
) -> Any:
    if WRITE.match(sql):
        raise ToolError(
            "A preview is not possible: saving also writes to the database "
            f"{context['connection'].alias!r}, which cannot be rolled back. "
            "Nothing was changed; to write, call again without preview."
        )
    return execute(sql, params, many, context)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields that differ between two states of an object, with both values."""
    names = dict.fromkeys([*before, *after])
    return {
        name: {"from": before.get(name), "to": after.get(name)}
        for name in names
        if before.get(name) != after.get(name)
    }


def hidden_fields(declaration: Any, written: Iterable[str]) -> list[str]:
    """Return those of the written fields that are not shown.

    All of them are returned, changed or not: whether a field changes would reveal its value.
    """
    columns = declaration.model._meta.concrete_fields
    shown_names = {*declaration.exposed.object_schema["properties"]}
    shown_names |= {field.name for field in columns if field.attname in shown_names}
    return [name for name in written if name not in shown_names]


# Form errors that a caller can correct ------------------------------------------------------------

# A message names the rule and the allowed values. It reveals no more about other rows than that a
# value is taken. It never names a field that callers do not know.

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


# The messages must not reveal the field or its value.
_HIDDEN = "not allowed because of a value that you may not see"
_MISSING = (
    "the site requires a value that this tool does not send; only its developers can add it, and "
    "the error was logged"
)


class OtherFieldError(ValidationError):
    """A validation error of a field that is not in the form."""

    def __init__(self, field: str, error: ValidationError) -> None:
        super().__init__(error.message, code=error.code, params=error.params)
        self.field = field


def form_problems(
    form: forms.BaseForm,
    sent: dict[str, Any],
    schemas: dict[str, Schema],
    readable_names: Collection[str],
) -> Iterator[ValidationProblem]:
    """Yield the problems of the arguments ``sent``; callers may read ``readable_names``."""
    for name, errors in form.errors.as_data().items():
        schema = schemas.get(name, {})
        is_shown = name in sent and not schema.get("writeOnly")
        for error in errors:
            field = form.fields.get(name)
            if isinstance(error, OtherFieldError):
                yield _other_field_problem(error.field, error, readable_names)
                continue
            yield ValidationProblem(
                path="" if name == NON_FIELD_ERRORS else name,
                value=sent[name] if is_shown else MISSING,
                message=_error_message(error, field, schema, readable_names),
            )


def error_problems(
    exc: ValidationError, readable_names: Collection[str]
) -> Iterator[ValidationProblem]:
    """Yield the problems in a validation error that a model or a hook raised while saving."""
    if not hasattr(exc, "error_dict"):
        yield ValidationProblem(path="", message=" ".join(exc.messages).rstrip("."))
        return
    for name, errors in exc.error_dict.items():
        for error in errors:
            yield _other_field_problem(
                "" if name == NON_FIELD_ERRORS else name, error, readable_names
            )


def remove_duplicates(problems: Iterable[ValidationProblem]) -> list[ValidationProblem]:
    """Return the problems without duplicates; those of hidden fields are the same to the caller."""
    unique_problems: list[ValidationProblem] = []
    for problem in problems:
        if problem not in unique_problems:
            unique_problems.append(problem)
    return unique_problems


def _other_field_problem(
    name: str, error: ValidationError, readable_names: Collection[str]
) -> ValidationProblem:
    if name and name not in readable_names:
        # The log of the site is for its developers.
        logger.warning(
            "A write was rejected because of %r, which its tool neither shows nor writes (%s): %s",
            name,
            error.code or "invalid",
            " ".join(error.messages),
        )
        is_missing = error.code in {"required", "null", "blank"}
        return ValidationProblem(path="", message=_MISSING if is_missing else _HIDDEN)
    return ValidationProblem(path=name, message=_error_message(error, None, {}, readable_names))


def _error_message(
    error: ValidationError,
    field: forms.Field | None,
    schema: Schema,
    readable_names: Collection[str],
) -> str:
    if error.code in {"required", "null", "blank"}:
        return "is required"
    if error.code in {"unique", "unique_together"}:
        together = dict(error.params or {}).get("unique_check", ())
        if len(together) < 2:
            return "is already taken and must be unique"
        if set(together) <= set(readable_names):
            return f"this combination of {' and '.join(together)} is already taken"
        return "this combination of values is already taken"
    if isinstance(field, forms.ModelChoiceField) and error.code in {
        "invalid_choice",
        "invalid_pk_value",
    }:
        # The message is the same for a hidden row as for one that does not exist.
        noun = related_noun(field)
        if not isinstance(field, forms.ModelMultipleChoiceField):
            return f"this {noun} does not exist"
        params = dict(error.params or {})
        return f"there is no {noun} {params.get('value', params.get('pk', ''))}"
    allowed = schema.get("enum") or schema.get("items", {}).get("enum")
    if error.code == "invalid_choice" and allowed:
        return enum_rule(allowed)
    if error.code == "invalid" and (words := _kind(schema)):
        return words
    return " ".join(error.messages).rstrip(".")


def related_noun(field: forms.ModelChoiceField[Any]) -> str:
    """Return the verbose name of the model that a field refers to."""
    if field.queryset is None:
        return "object"
    return str(field.queryset.model._meta.verbose_name)


def _kind(schema: Schema) -> str:
    if schema.get("format") in _BY_FORMAT:
        return _BY_FORMAT[schema["format"]]
    kind = schema.get("type")
    return type_rule(kind) if kind in {"integer", "number", "boolean"} else ""


# Row locks, admin history and changed fields ------------------------------------------------------


def acquire_sqlite_write_lock(alias: str, model: type[Model]) -> None:
    """Take SQLite's write lock before anything is read.

    An SQLite transaction that reads and then writes fails if another connection wrote in between.
    This statement takes the write lock and changes no row.
    """
    connection = connections[alias]
    if connection.vendor != "sqlite":
        return
    quote = connection.ops.quote_name
    table, column = quote(model._meta.db_table), quote(str(model._meta.pk.column))
    # Not through Django's cursor, so that tests that count or capture queries do not see it.
    with connection.wrap_database_errors:
        connection.connection.execute(f"UPDATE {table} SET {column} = {column} WHERE 1 = 0")  # noqa: S608


def lock_row(obj: Model, alias: str) -> bool:
    """Lock the row of an object until the transaction ends; return ``False`` if unsupported.

    The row rule may join and group, which databases cannot lock, so the row is locked by its key.
    """
    if not connections[alias].features.has_select_for_update:
        return False
    rows = type(obj)._base_manager.using(alias).select_for_update()
    rows.filter(pk=obj.pk).values_list("pk").first()
    return True


WriteAction = Literal["add", "change", "delete"]
# django.contrib.admin.models has the same numbers, and cannot be imported without the admin.
FLAGS = {"add": 1, "change": 2, "delete": 3}


def record_history(
    ctx: Context,
    obj: Model,
    key: Any,
    action: WriteAction,
    *,
    tool: str,
    fields: Iterable[str] = (),
) -> None:
    """Add a ``LogEntry`` to the history of an object, if an admin and a user exist.

    ``key`` is the primary key, which a deleted object no longer has. Only the names of fields are
    recorded, not their values, since readers of the history may see fewer fields than the writer.
    """
    if not apps.is_installed("django.contrib.admin") or not _is_user(ctx.user):
        return
    from django.contrib.admin.models import LogEntry
    from django.contrib.contenttypes.models import ContentType

    content_type = ContentType.objects.get_for_model(obj, for_concrete_model=False)
    changed = ", ".join(fields) or "no field"
    done = {"add": "Added", "change": f"Changed {changed}", "delete": "Deleted"}[action]
    LogEntry.objects.create(
        user_id=ctx.user.pk,
        content_type_id=content_type.pk,
        object_id=str(key),
        object_repr=str(obj)[:200],
        action_flag=FLAGS[action],
        change_message=f"{done} through the MCP tool {tool}.",
    )


def _is_user(user: Any) -> bool:
    """Return whether the caller is a saved user of the site's user model, as history requires."""
    from django.contrib.auth import get_user_model

    return isinstance(user, get_user_model()) and user.pk is not None


class FieldSnapshot:
    """The values of some fields of an object before it is written."""

    def __init__(self, obj: Model, names: Iterable[str]) -> None:
        self._before = {
            name: _value(obj, field) for name in names if (field := _field(obj, name)) is not None
        }

    def changed(self, obj: Model) -> list[str]:
        """Return the names of the fields whose values have changed."""
        return [
            name
            for name, before in self._before.items()
            if _value(obj, obj._meta.get_field(name)) != before
        ]


def _field(obj: Model, name: str) -> Any:
    """Return the model field of this name; forms and serializers can have fields without one."""
    try:
        field = obj._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    # Whether many-to-many fields are concrete depends on Django's version.
    return field if field.concrete or isinstance(field, ManyToManyField) else None


def _value(obj: Model, field: Any) -> Any:
    if field.many_to_many:
        manager = getattr(obj, field.name)
        if has_own_manager(field):
            return {row.pk for row in manager.all()}
        return set(manager.values_list("pk", flat=True))
    value = getattr(obj, field.attname)
    return value if field.is_relation else field.to_python(value)
