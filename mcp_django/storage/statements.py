"""The statements of hot paths, compiled once: building a query takes longer than running it.

They read callers, sessions and versions, and write the rows of the writers. The process compiles
and keeps each for an alias at its first use, and nothing clears them: models do not change. A
forked child continues to use them.

This module alone uses internals of Django's ORM, checked against 5.2 and 6.0: the compilers of
queries (``as_sql``, ``get_converters``, ``select``, ``compile``), ``UpdateQuery`` and
``InsertQuery``, ``QuerySet._query`` and ``_iterable_class``, and of the database operations
``bulk_insert_sql``, ``insert_statement``, ``on_conflict_suffix_sql`` and ``bulk_batch_size``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from django.db import connections
from django.db.models import (
    AutoField,
    BooleanField,
    CharField,
    DateTimeField,
    FloatField,
    IntegerField,
    JSONField,
    Model,
    QuerySet,
    TextField,
)
from django.db.models.constants import OnConflict
from django.db.models.expressions import RawSQL
from django.db.models.sql import InsertQuery, UpdateQuery

from mcp_django.storage.databases import in_batches
from mcp_django.tenants import current_tenant

M = TypeVar("M", bound=Model)
T = TypeVar("T")


class Parameter(str):
    """A placeholder for a text value in a query; its text is the key of the value."""

    __slots__ = ()


def placeholder(name: str) -> Any:
    """Return an expression that is a placeholder for a number in a query."""
    return RawSQL("%s", [Parameter(name)])


def placeholders(count: int) -> list[Any]:
    """Return ``count`` placeholders, whose values are ``numbered``."""
    return [placeholder(str(n)) for n in range(count)]


def parameters(count: int) -> list[Parameter]:
    """Return ``count`` parameters, whose values are ``numbered``."""
    return [Parameter(str(n)) for n in range(count)]


def numbered(values: Sequence[Any]) -> dict[str, Any]:
    """Return values by the names of ``placeholders`` or ``parameters``."""
    return {str(n): value for n, value in enumerate(values)}


def padded(values: Sequence[T]) -> Sequence[T]:
    """Repeat the last value up to a power of two, so that few lengths have to be compiled."""
    if not values:
        return values
    return [*values, *[values[-1]] * ((1 << (len(values) - 1).bit_length()) - len(values))]


_NONE: Final[Mapping[str, Any]] = {}


class _Compiled(NamedTuple):
    queryset: Any
    compiler: Any
    sql: str
    parameters: Sequence[Any]
    converters: Any
    """The converters of the columns, as the compiler returns them."""


class CompiledQuery(Generic[M]):
    """A compiled query; ``build`` returns its query set for an alias."""

    def __init__(self, build: Callable[[str], QuerySet[M, Any]]) -> None:
        self._build = build
        self._compiled = cache(self._compile)

    def _compile(self, alias: str) -> _Compiled:
        queryset = self._build(alias)
        compiler: Any = queryset.query.get_compiler(alias)
        sql, parameters = compiler.as_sql()
        columns = [column for column, *_ in compiler.select]
        return _Compiled(queryset, compiler, sql, parameters, compiler.get_converters(columns))

    def first(self, alias: str, values: Mapping[str, Any] = _NONE) -> Any:
        """Return the first row, as the query yields it, or ``None``.

        Raises:
            DatabaseError: the database could not be queried.
        """
        return next(self.rows(alias, values), None)

    def rows(self, alias: str, values: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the rows, as the query yields them; no other query may begin before the last row.

        Raises:
            DatabaseError: the database could not be queried.
        """
        compiled = self._compiled(alias)
        bound = _bound(compiled.parameters, values)
        compiler = copy(compiled.compiler)
        compiler.connection = connections[alias]
        compiler.as_sql = lambda *args, **kwargs: (compiled.sql, bound)
        compiler.get_converters = lambda columns: compiled.converters
        # ``copy`` would evaluate the query set, so it is not used here.
        queryset = object.__new__(type(compiled.queryset))
        queryset.__dict__.update(
            compiled.queryset.__dict__, _query=_ReadyQuery(compiled.queryset, compiler)
        )
        return iter(queryset._iterable_class(queryset))


def _bound(parameters: Sequence[Any], values: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(
        values[parameter] if isinstance(parameter, Parameter) else parameter
        for parameter in parameters
    )


class CompiledUpdate:
    """A compiled update; ``build`` returns the rows of one table for an alias, and the changes."""

    def __init__(self, build: Callable[[str], tuple[QuerySet[Any], Mapping[str, Any]]]) -> None:
        self._build = build
        self._compiled = cache(self._compile)

    def _compile(self, alias: str) -> tuple[str, Sequence[Any]]:
        queryset, changes = self._build(alias)
        query: Any = queryset.order_by().query.chain(UpdateQuery)
        query.add_update_values(changes)
        statement: tuple[str, Sequence[Any]] = query.get_compiler(alias).as_sql()
        return statement

    def update(self, alias: str, values: Mapping[str, Any]) -> int:
        """Update the rows, and return how many there were.

        Raises:
            DatabaseError: the database did not store the changes.
        """
        sql, parameters = self._compiled(alias)
        with connections[alias].cursor() as cursor:
            cursor.execute(sql, _bound(parameters, values))
            count: int = cursor.rowcount
            return count


class CompiledInsert:
    """A compiled insert of rows without model instances, which would take longer than the rest.

    ``expressions`` returns, by attribute name, what the database computes for each row.
    """

    def __init__(
        self,
        model: Callable[[], type[Model]],
        expressions: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._model = model
        self._expressions = expressions
        self._compiled = cache(self._compile)

    def _compile(self, alias: str) -> _CompiledInsert:
        model, expressions = self._model(), self._expressions()
        operations: Any = connections[alias].ops
        query = InsertQuery(model)
        compiler: Any = query.get_compiler(alias)
        model_fields = model._meta.concrete_fields
        fields = [field for field in model_fields if not isinstance(field, AutoField)]
        values: dict[str, Any] = {}
        prepared, places = [], []
        for field in fields:
            if field.attname in expressions:
                expression = expressions[field.attname]
                expression = expression.resolve_expression(query, allow_joins=False, for_save=True)
                place, parameters = compiler.compile(expression)
                values |= {
                    f"{field.attname} {n}": parameter for n, parameter in enumerate(parameters)
                }
            else:
                place = "%s"
                # Each row must contain its tenant: the thread that writes the row has none.
                default = "" if field.default is current_tenant else field.get_default()
                if not isinstance(field, _PLAIN_FIELDS):
                    prepare = _preparing(field)
                    ready = field.get_db_prep_save(default, connections[alias])
                    prepared.append(_Prepared(len(values), prepare, default, ready))
                values[field.attname] = default
            places.append(place)
        names = ", ".join(operations.quote_name(field.column) for field in fields)
        table = f"{operations.quote_name(model._meta.db_table)} ({names})"
        single_row = operations.bulk_insert_sql(fields, [places])
        return _CompiledInsert(
            fields, values, itemgetter(*values), prepared, places, table, single_row
        )

    def insert(self, alias: str, rows: Sequence[Mapping[str, Any]], *, again: bool = False) -> None:
        """Insert rows, each with its values by attribute name; other columns get their defaults.

        With ``again``, rows that already exist are not changed.

        Raises:
            DatabaseError: the database did not store them.
        """
        if not rows:
            return
        connection = connections[alias]
        compiled = self._compiled(alias)
        operations: Any = connection.ops
        values = [compiled.values_of(row, connection) for row in rows]
        # One statement for many rows: in each, a driver releases the GIL and gets it back late.
        connection.ensure_connection()
        # For SQLite, Django assumes the limit of old versions, a fraction of the actual limit.
        if limit := getattr(connection.connection, "getlimit", None):
            size = max(1, int(limit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)) // len(values[0]))
        else:
            size = operations.bulk_batch_size(compiled.fields, values)
        conflict = OnConflict.IGNORE if again else None
        insert = f"{operations.insert_statement(on_conflict=conflict)} {compiled.table}"
        suffix = operations.on_conflict_suffix_sql(compiled.fields, conflict, (), ())
        with connection.cursor() as cursor:
            for part in in_batches(values, size):
                places = compiled.one_row
                if len(part) > 1:
                    places = operations.bulk_insert_sql(
                        compiled.fields, [compiled.places] * len(part)
                    )
                cursor.execute(f"{insert} {places} {suffix}", list(chain.from_iterable(part)))


# The fields whose values need no preparation for the database.
_PLAIN_FIELDS = (BooleanField, CharField, FloatField, IntegerField, TextField)


# How many prepared lists of names are cached for each JSON column.
_KEPT_LISTS = 256


def _preparing(field: Any) -> Callable[[Any, Any], Any]:
    """Return the function that prepares a value of a column for a database connection."""
    if isinstance(field, DateTimeField):
        # All values are aware; the checks of the field, left out here, take as long as this.
        return lambda value, connection: connection.ops.adapt_datetimefield_value(value)
    prepare: Callable[[Any, Any], Any] = field.get_db_prep_save
    if not isinstance(field, JSONField):
        return prepare
    ready_lists: dict[tuple[str, ...], Any] = {}

    def prepare_json(value: Any, connection: Any) -> Any:
        # The names of the arguments are the same in each call of a tool.
        if type(value) is not list or not all(type(name) is str for name in value):
            return prepare(value, connection)
        key = tuple(value)
        ready = ready_lists.get(key)
        if ready is None:
            if len(ready_lists) >= _KEPT_LISTS:
                ready_lists.clear()
            ready = ready_lists[key] = prepare(value, connection)
        return ready

    return prepare_json


class _Prepared(NamedTuple):
    """A value that has to be prepared for the database."""

    place: int
    prepare: Callable[..., Any]
    default: Any
    ready: Any
    """The default, prepared."""


class _CompiledInsert(NamedTuple):
    fields: Sequence[Any]
    defaults: Mapping[str, Any]
    """The values of a row by attribute name, in the order of the columns."""
    in_order: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    """Returns the values of a row as a tuple, in this order."""
    prepared: Sequence[_Prepared]
    places: Sequence[str]
    table: str
    """The table with its columns."""
    one_row: str
    """The SQL of the values of one row."""

    def values_of(self, row: Mapping[str, Any], connection: Any) -> Sequence[Any]:
        """Return the parameters of a row."""
        values = [*self.in_order({**self.defaults, **row})]
        for place, prepare, default, ready in self.prepared:
            value = values[place]
            values[place] = ready if value == default else prepare(value, connection)
        return values


class _ReadyQuery:
    """A query that is compiled already."""

    def __init__(self, queryset: Any, compiler: Any) -> None:
        self._query = queryset.query
        self._compiler = compiler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def get_compiler(self, using: str) -> Any:
        """Return the compiler of the alias for which the query was compiled."""
        return self._compiler
