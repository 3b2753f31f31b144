"""Around a write: preview (dry run), cascades of a deletion, form errors, row locks and history.

A preview runs forms, hooks, ``save`` and signals as usual, inside transactions that are rolled
back, so callbacks of ``on_commit`` never run. What a transaction cannot roll back (an email, a
file, a job that a signal puts into a queue at once) does happen: such work belongs in
``on_commit``, and the documentation says so. Another database that is written to meanwhile would
keep the data, so that is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from django import forms
from django.apps import apps
from django.core.exceptions import NON_FIELD_ERRORS, FieldDoesNotExist, ValidationError
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import ManyToManyField, Model, Q, QuerySet
from django.db.models.deletion import Collector, ProtectedError, RestrictedError

from mcp_django.core.context import Context
from mcp_django.exceptions import ToolError
from mcp_django.integrations.models.row_access import viewable
from mcp_django.schema.arguments import MISSING, Problem
from mcp_django.schema.problems import of_kind, one_of
from mcp_django.schema.structure import Schema

WRITE = re.compile(
    r"\s*(INSERT|UPDATE|DELETE|REPLACE|MERGE|CREATE|ALTER|DROP|TRUNCATE)\b", re.IGNORECASE
)

NOT_SHOWN = "not_shown"


@contextmanager
def taken_back(alias: str) -> Iterator[None]:
    """Undo at the end what was written to a database, and let nothing be written to others."""
    ours = _reversible(alias)
    with ExitStack() as stack:
        for other in connections:
            if other not in ours:
                stack.enter_context(connections[other].execute_wrapper(_refuse_writes))
        for one in ours:
            stack.enter_context(_rolled_back(one))
        yield


@contextmanager
def _rolled_back(alias: str) -> Iterator[None]:
    with transaction.atomic(using=alias):
        yield
        transaction.set_rollback(True, using=alias)


def _reversible(alias: str) -> list[str]:
    """The model's own database, the default one and those that are in a transaction anyway.

    A transaction on each of them would connect to databases that nobody asks.
    """
    found = [one.alias for one in connections.all(initialized_only=True) if one.in_atomic_block]
    default = connections[DEFAULT_DB_ALIAS].settings_dict["ENGINE"]
    if default != "django.db.backends.dummy":
        # Notices to subscribers wait for its commit where the site named no other database.
        found.append(DEFAULT_DB_ALIAS)
    return list(dict.fromkeys([alias, *found]))


def _refuse_writes(
    execute: Callable[..., Any],
    sql: str,
    params: Any,
    many: bool,  # noqa: FBT001 - Django's order
    context: Mapping[str, Any],
) -> Any:
    if WRITE.match(sql):
        raise ToolError(
            "There is no preview of this: saving also writes to the database "
            f"{context['connection'].alias!r}, which could not be taken back. "
            "Nothing was changed; call again without preview once you are sure."
        )
    return execute(sql, params, many, context)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What changes, field by field, between an object as it was and as it would be shown."""
    names = dict.fromkeys([*before, *after])
    return {
        name: {"from": before.get(name), "to": after.get(name)}
        for name in names
        if before.get(name) != after.get(name)
    }


def not_shown(declaration: Any, written: Iterable[str]) -> list[str]:
    """Which of these can be written and are not among what is shown.

    All of them are named, changed or not: whether one is different would tell its value.
    """
    columns = declaration.model._meta.concrete_fields
    shown = {*declaration.exposed.schema["properties"]}
    shown |= {field.name for field in columns if field.attname in shown}
    return [name for name in written if name not in shown]


# What a deletion takes along, and what prevents it ------------------------------------------------

# Only rows that the caller may see are counted, by model: callers must not learn how many rows that
# they may not view refer to an object.

# How many keys one statement compares with; SQLite has a limit.
BATCH = 500

Counts = dict[str, int]


def cascade(obj: Model, *, alias: str, server: Any, ctx: Context) -> dict[str, Counts]:
    """The rows that deletion takes along, and those that lose their link to what is deleted.

    Nothing where something protects the object: whether that matters is for deletion to say, as a
    site may only hide what is deleted.
    """
    collector = Collector(using=alias, origin=obj)
    try:
        collector.collect([obj])
    except (ProtectedError, RestrictedError):
        return {}
    deleted = _Count(alias, server, ctx)
    deleted.sure(type(obj), 1)
    for model, instances in collector.data.items():
        deleted.add(model, [one.pk for one in instances if one is not obj])
    for fast in collector.fast_deletes:
        deleted.add(fast.model, fast)
    detached = _Count(alias, server, ctx)
    for (field, _), batches in collector.field_updates.items():
        for batch in batches:
            detached.add(field.model, _keys(batch))
    found = {"deleted": deleted.counts, "detached": detached.counts}
    return {name: counts for name, counts in found.items() if counts}


def protected(
    exc: ProtectedError | RestrictedError, obj: Model, *, alias: str, server: Any, ctx: Context
) -> ToolError:
    """The refusal to delete what others refer to, with their number and model."""
    found = exc.args[1]
    count = _Count(alias, server, ctx)
    for model in {type(one) for one in found}:
        count.add(model, [one.pk for one in found if type(one) is model])
    noun = obj._meta.verbose_name
    seen = " and ".join(f"{number} {label}" for label, number in sorted(count.counts.items()))
    why = seen or "by what you may not see"
    advice = " Delete those first, or have them refer to something else." if seen else ""
    return ToolError(f"This {noun} cannot be deleted while it is referred to ({why}).{advice}")


class _Count:
    """Counts rows by model, those that the caller may see."""

    def __init__(self, alias: str, server: Any, ctx: Context) -> None:
        self.counts: Counts = {}
        self._alias = alias
        self._server = server
        self._ctx = ctx

    def sure(self, model: type[Model], number: int) -> None:
        """Count rows that the caller is known to see."""
        if number:
            label = model._meta.label
            self.counts[label] = self.counts.get(label, 0) + number

    def add(self, model: type[Model], rows: QuerySet[Any] | Iterable[Any]) -> None:
        """Count those of the rows, or of the rows with these keys, that the caller may see."""
        if model._meta.auto_created:
            # A table of links; what it links is counted by itself.
            return
        if isinstance(rows, QuerySet):
            self._add(model, Q(pk__in=rows.values("pk")))
            return
        for batch in _batches(list(rows)):
            self._add(model, Q(pk__in=batch))

    def _add(self, model: type[Model], among: Q) -> None:
        visible = viewable(self._server, model, self._ctx, among=among)
        if visible is not None:
            self.sure(model, visible.using(self._alias).filter(among).count())


def _keys(rows: Any) -> Any:
    """What is updated in bulk is a query; what was loaded is a list."""
    if isinstance(rows, QuerySet) and rows._result_cache is None:
        return rows
    return [one.pk for one in rows]


def _batches(keys: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(keys), BATCH):
        yield keys[start : start + BATCH]


# Form errors by which a model corrects its call ---------------------------------------------------

# A message names the rule and what would be allowed. Of other rows it reveals only that a value
# is taken. It never names a field that callers do not know.

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


# Row locks until a write is done ------------------------------------------------------------------


def begin_writing(alias: str, model: type[Model]) -> None:
    """Make SQLite wait for its turn before anything is read.

    A transaction that reads first and then finds that somebody else wrote can only fail there. This
    statement changes no row and takes the lock of a writer.
    """
    connection = connections[alias]
    if connection.vendor != "sqlite":
        return
    quote = connection.ops.quote_name
    table, column = quote(model._meta.db_table), quote(str(model._meta.pk.column))
    # Past Django's cursor: to a test that counts or watches statements this is none.
    with connection.wrap_database_errors:
        connection.connection.execute(f"UPDATE {table} SET {column} = {column} WHERE 1 = 0")  # noqa: S608


def lock(obj: Model, alias: str) -> bool:
    """Hold the row of an object until the transaction ends; ``False`` where no row is held.

    The row gate may join and group, which no database locks, so the row is held by its key alone.
    """
    if not connections[alias].features.has_select_for_update:
        return False
    rows = type(obj)._base_manager.using(alias).select_for_update()
    rows.filter(pk=obj.pk).values_list("pk").first()
    return True


# History in the admin -----------------------------------------------------------------------------

Deed = Literal["add", "change", "delete"]
# django.contrib.admin.models has the same numbers, and cannot be imported without the admin.
FLAGS = {"add": 1, "change": 2, "delete": 3}


def record(
    ctx: Context, obj: Model, key: Any, deed: Deed, *, tool: str, fields: Iterable[str] = ()
) -> None:
    """Leave a ``LogEntry`` in the history of an object; without admin or user there is none.

    ``key`` is the object's own, which a deleted one has lost. Fields are named and never their
    values, since who reads the history may see fewer fields than who wrote.
    """
    if not apps.is_installed("django.contrib.admin") or not _is_user(ctx.user):
        return
    from django.contrib.admin.models import LogEntry
    from django.contrib.contenttypes.models import ContentType

    kind = ContentType.objects.get_for_model(obj, for_concrete_model=False)
    LogEntry.objects.create(
        user_id=ctx.user.pk,
        content_type_id=kind.pk,
        object_id=str(key),
        object_repr=str(obj)[:200],
        action_flag=FLAGS[deed],
        change_message=_message(deed, tool, list(fields)),
    )


def _is_user(user: Any) -> bool:
    """Whether the history can point to this caller: a row of the site's own table of users."""
    from django.contrib.auth import get_user_model

    return isinstance(user, get_user_model()) and user.pk is not None


def _message(deed: Deed, tool: str, fields: list[str]) -> str:
    through = f"through the MCP tool {tool}."
    if deed == "add":
        return f"Added {through}"
    if deed == "delete":
        return f"Deleted {through}"
    return f"Changed {', '.join(fields)} {through}" if fields else f"Changed no field {through}"


# Fields that a write changed ----------------------------------------------------------------------


class Written:
    """The values that some fields of an object have before it is written."""

    def __init__(self, obj: Model, names: Iterable[str]) -> None:
        self._before = {
            name: _value(obj, field) for name in names if (field := _field(obj, name)) is not None
        }

    def changed(self, obj: Model) -> list[str]:
        """The names of the fields that are different now."""
        return [
            name
            for name, before in self._before.items()
            if _value(obj, obj._meta.get_field(name)) != before
        ]


def _field(obj: Model, name: str) -> Any:
    """A form or serializer may have fields that the model has not."""
    try:
        field = obj._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    # Whether links to many count as concrete depends on Django's version.
    return field if field.concrete or isinstance(field, ManyToManyField) else None


def _value(obj: Model, field: Any) -> Any:
    if field.many_to_many:
        return set(getattr(obj, field.name).values_list("pk", flat=True))
    return (
        field.to_python(getattr(obj, field.attname))
        if not field.is_relation
        else (getattr(obj, field.attname))
    )
