"""``create``, ``update`` and ``delete``: tools that write one object by the site's own rules.

A write runs in a transaction and ends with a check against the row rule (``get_queryset``): an
object that the caller could not see afterwards is not saved, so that a caller cannot move an
object into, or out of, another tenant. A preview runs the same steps and rolls them back.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    DataError,
    IntegrityError,
    connections,
    router,
    transaction,
)
from django.db.models import AutoField, FileField, Model
from django.db.models.deletion import ProtectedError, RestrictedError
from django.utils.translation import override
from pydantic import Field as Rule

from mcp_django.components.context import Context
from mcp_django.components.declare import (
    GeneratedArgument,
    TrustedOutput,
    build_arguments,
    build_function,
)
from mcp_django.components.tool import Tool
from mcp_django.exceptions import ToolError
from mcp_django.integrations.models.columns import validate_storable_text
from mcp_django.integrations.models.declaration import WriteHooks
from mcp_django.integrations.models.deletion import (
    AT_LEAST,
    DELETED,
    DETACHED,
    DeletionObserver,
    protected_error,
)
from mcp_django.integrations.models.exposed_fields import Key
from mcp_django.integrations.models.list_get import get_permitted_object
from mcp_django.integrations.models.write_effects import (
    NOT_SHOWN,
    FieldSnapshot,
    WriteAction,
    acquire_sqlite_write_lock,
    difference,
    error_problems,
    hidden_fields,
    lock_row,
    remove_duplicates,
    roll_back_writes,
)
from mcp_django.integrations.models.write_forms import (
    FormInputs,
    WriteForm,
    check_required_columns,
    missing_values_error,
)
from mcp_django.protocol.content import ToolResult
from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    InvalidArguments,
    ValidationProblem,
    format_path,
    format_problems,
)
from mcp_django.schema.deferred import CallerArguments, Deferred, DeferredArguments, runs_own_code
from mcp_django.schema.portable import portable_input
from mcp_django.schema.structure import Path, Schema
from mcp_django.schema.values import decode_arguments, drop_nulls, unknown_members

if TYPE_CHECKING:
    from mcp_django.integrations.models.serializer_inputs import SerializerInputs

logger = logging.getLogger("mcp_django")

PREVIEW = "preview"
CLEAR = "clear"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCall:
    """The parsed arguments of a write.

    ``key`` identifies the object. ``clear`` names the fields to empty: ``null`` does not empty a
    field, because some clients send ``null`` for every argument that they leave out.
    """

    values: Mapping[str, Any]
    key: Any = None
    clear: Sequence[str] = ()
    preview: bool = False
    inputs: WriteInputs | None = None
    """The validator of the values; ``None`` for a deletion."""

    @property
    def written(self) -> list[str]:
        """The names of the fields that the call sets or empties."""
        return [*self.values, *self.clear]


class WriteDryRun:
    """The dry run of a write tool, for ``Tool.dry_run``."""

    def is_dry_run(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the call is a preview."""
        call: WriteCall = arguments["call"]
        return call.preview

    def to_dry_run(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of the preview."""
        return {**arguments, "call": replace(arguments["call"], preview=True)}


WriteInputs: TypeAlias = "FormInputs | SerializerInputs"
"""Validates the values with a form or a serializer."""


class WriteArguments:
    """Parses the arguments of a write tool; the function gets one ``call``.

    The arguments are the key of the object, the values, and whether the call is a preview. They are
    validated in two steps. Names and types are checked before the call is authorized to run. Values
    are validated within its transaction, by a form or serializer that has the object, since the
    rules may depend on rows and on the caller.
    """

    def __init__(
        self,
        of: str,
        *,
        key: Key | None,
        inputs: WriteInputs | None,
        files: Collection[str] = (),
        has_preview: bool = True,
    ) -> None:
        self.inputs = inputs
        self._key = key
        written = inputs.properties if inputs is not None else {}
        # Files that are shown but cannot be written have an error message of their own.
        self._files = [name for name in files if name not in written]
        emptiable = inputs.emptiable if inputs is not None and key is not None else []
        self._head = build_arguments(of, _head(key, emptiable, has_preview=has_preview))
        head = self._head.json_schema
        own = dict(head["properties"])
        last = {name: own.pop(name) for name in (CLEAR, PREVIEW) if name in own}
        is_new = key is None and inputs is not None
        self._shape: Schema = {
            "type": "object",
            "properties": {**own, **written, **last},
            "required": [
                *head.get("required", ()),
                *(inputs.required if inputs is not None and is_new else ()),
            ],
            "additionalProperties": False,
        }
        self.json_schema = portable_input(self._shape)

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the ``call``; does not query the database.

        Raises:
            InvalidArguments: an argument is not valid; the caller can correct it.
        """
        values = drop_nulls(decode_arguments(raw), self._shape, self._shape)
        if problems := [*islice(self._unknown(values), MAX_KEPT_PROBLEMS)]:
            raise InvalidArguments(problems)
        properties = self._head.json_schema["properties"]
        head = {name: values.pop(name) for name in properties if name in values}
        problems = [*islice(_unstorable(values, ()), MAX_KEPT_PROBLEMS)]
        if self.inputs is not None and not problems:
            problems += self.inputs.check_types(values)
        try:
            arguments = self._head.parse(json.dumps(head).encode())
        except InvalidArguments as exc:
            raise InvalidArguments([*exc.problems, *problems]) from exc
        problems += [
            ValidationProblem(path=name, message="has a value and is also in clear; send only one")
            for name in arguments.get(CLEAR, ())
            if name in values
        ]
        if problems:
            raise InvalidArguments(problems)
        call = WriteCall(
            key=arguments[self._key.name] if self._key is not None else None,
            values=values,
            clear=tuple(dict.fromkeys(arguments.get(CLEAR, ()))),
            preview=arguments.get(PREVIEW, False),
            inputs=self.inputs,
        )
        return {"call": call}

    def _unknown(self, values: dict[str, Any]) -> Iterator[ValidationProblem]:
        """Yield problems for unknown names, and for a missing key.

        A missing key is reported here only with an unknown name, which may be its misspelling.
        """
        plain_values = {name: value for name, value in values.items() if name not in self._files}
        for name in values.keys() - plain_values.keys():
            yield ValidationProblem(path=name, message="is a file, which cannot be written here")
        unknown = [*unknown_members(plain_values, self._shape)]
        yield from unknown
        if unknown and self._key is not None and self._key.name not in values:
            yield ValidationProblem(path=self._key.name, message="is required")


def _head(
    key: Key | None, emptiable: Sequence[str], *, has_preview: bool
) -> dict[str, GeneratedArgument]:
    """Return the arguments that are not values of fields."""
    arguments: dict[str, GeneratedArgument] = {}
    if key is not None:
        arguments[key.name] = GeneratedArgument(annotation=key.annotation, required=True)
    if emptiable:
        arguments[CLEAR] = GeneratedArgument(
            annotation=Annotated[list[Literal[tuple(emptiable)]], Rule(max_length=len(emptiable))],  # type: ignore[misc]  # known when it runs
            description="Fields to empty.",
            default=[],
        )
    if has_preview:
        arguments[PREVIEW] = GeneratedArgument(
            annotation=bool,
            description="True: return what would change, and change nothing.",
            default=False,
        )
    return arguments


def _unstorable(value: Any, path: Path) -> Iterator[ValidationProblem]:
    """Yield a problem for each text, at any depth, that databases cannot store."""
    if isinstance(value, str):
        try:
            validate_storable_text(value)
        except ValueError as exc:
            yield ValidationProblem(path=format_path(path), message=str(exc))
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from _unstorable(name, path)
            yield from _unstorable(member, (*path, name))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _unstorable(element, (*path, index))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectWriter:
    """One of the write tools of a declaration."""

    declaration: WriteHooks[Any]
    tool: str

    def create(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        """Save a new object and return it."""
        call: WriteCall = arguments["call"]
        if not self.declaration.has_permission(ctx, "add"):
            raise PermissionDenied(f"You may not add {self.declaration.nouns}.")
        with self._transaction(call) as alias:
            form = self._bind(ctx, call, None)
            try:
                saved = self._run_hook(self.declaration.perform_create, ctx, form, call)
            except IntegrityError as exc:
                if problem := self._missing_values(form, None):
                    raise self._refusal(problem, call) from exc
                raise
            # The hook may not have set all columns that the model requires.
            if problem := self._missing_values(form, saved):
                raise self._refusal(problem, call)
            obj = form.instance if saved is None else saved
            if not self.declaration.has_permission(ctx, "add", obj):
                raise PermissionDenied(f"You may not add this {self.declaration.noun}.")
            result = self._shown(ctx, obj, alias)
            if call.preview:
                values = dict(result or {})
                key = self.declaration.model._meta.pk
                if isinstance(key, AutoField):
                    # The key will differ when the object is saved: the database sequence also
                    # advances if the row is rolled back.
                    values.pop(key.name, None)
                changes = difference({}, values)
                return {PREVIEW: True, "changes": changes, **self._not_shown(call)}
            self.declaration.record_history(ctx, obj, obj.pk, "add", tool=self.tool)
        return _unseen("It was saved.") if result is None else result

    def update(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        """Change the given fields of an object and return it."""
        call: WriteCall = arguments["call"]
        if not call.written:
            assert call.inputs is not None
            names = ", ".join(call.inputs.properties)
            raise ToolError(f"There is nothing to change: send at least one of {names}.")
        with self._transaction(call) as alias:
            obj = self._find(ctx, call, "change", alias)
            before = self._shown(ctx, obj, alias) if call.preview else None
            written = FieldSnapshot(obj, call.written)
            form = self._bind(ctx, call, obj)
            saved = self._run_hook(self.declaration.perform_update, ctx, form, call)
            obj = form.instance if saved is None else saved
            result = self._shown(ctx, obj, alias)
            if call.preview:
                changes = difference(before or {}, result or {})
                return {PREVIEW: True, "changes": changes, **self._not_shown(call)}
            self.declaration.record_history(
                ctx, obj, obj.pk, "change", tool=self.tool, fields=written.changed(obj)
            )
        return _unseen("It was changed.") if result is None else result

    def delete(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        """Delete an object and return the numbers of deleted and detached rows."""
        call: WriteCall = arguments["call"]
        with self._transaction(call) as alias:
            obj = self._find(ctx, call, "delete", alias)
            server = self.declaration.server
            is_own = self.declaration.has_own_deletion
            observer = DeletionObserver(obj, alias=alias, server=server, ctx=ctx, is_own=is_own)
            # Django removes the primary key of a deleted object.
            snapshot = copy.copy(obj)
            try:
                with observer.observe():
                    self._run_hook(self.declaration.perform_delete, ctx, obj, call)
            except (ProtectedError, RestrictedError) as exc:
                raise protected_error(exc, snapshot, alias=alias, server=server, ctx=ctx) from exc
            counts = observer.counts()
            rows = self.declaration.rows(ctx).using(alias)
            label = self.declaration.model._meta.label
            if label not in counts.deleted and not rows.filter(pk=snapshot.pk).exists():
                # The site has hidden the row instead of deleting it.
                counts.deleted[label] = 1
            if call.preview:
                return {PREVIEW: True, **counts.as_result("cascade")}
            self.declaration.record_history(ctx, snapshot, snapshot.pk, "delete", tool=self.tool)
        return counts.as_result(DELETED)

    @contextmanager
    def _transaction(self, call: WriteCall) -> Iterator[str]:
        """Open a transaction on the database of the model, which a preview rolls back."""
        alias = router.db_for_write(self.declaration.model)
        around = roll_back_writes(alias) if call.preview else transaction.atomic(using=alias)
        try:
            with around:
                acquire_sqlite_write_lock(alias, self.declaration.model)
                yield alias
                if connections[alias].vendor == "postgresql":
                    # Check deferred constraints while an error can still be reported to the caller.
                    connections[alias].check_constraints()
        except (IntegrityError, DataError) as exc:
            logger.warning("The database rejected what %s wrote.", self.tool, exc_info=exc)
            raise ToolError(
                "The database rejected the values, and nothing was changed: a value that must be "
                "unique is taken, a value is missing or does not fit, or a related row is gone."
            ) from exc

    def _find(self, ctx: Context, call: WriteCall, action: WriteAction, alias: str) -> Model:
        """Return the object and lock it; a hidden object raises the same error as a missing one."""
        declaration = self.declaration
        key = {declaration.lookup.name: call.key}
        rows = declaration.rows(ctx).using(alias).filter(**key)
        obj = get_permitted_object(declaration, ctx, rows, key)
        if lock_row(obj, alias):
            # Another transaction may have changed the object before the lock was acquired.
            obj = get_permitted_object(declaration, ctx, rows.all(), key)
        # The object is checked, whatever the permission for the model is.
        if not declaration.has_permission(ctx, action, obj):
            raise PermissionDenied(f"You may not {action} this {declaration.noun}.")
        return obj

    def _bind(self, ctx: Context, call: WriteCall, instance: Model | None) -> Any:
        assert call.inputs is not None
        try:
            return call.inputs.bind(ctx, call, instance)
        except InvalidArguments as exc:
            raise ToolError(str(exc)) from exc

    def _run_hook(
        self,
        perform: Callable[[Context, Any], Any],
        ctx: Context,
        subject: Any,
        call: WriteCall,
    ) -> Any:
        """Run a hook; a validation error from saving must not reveal hidden values."""
        try:
            return perform(ctx, subject)
        except ValidationError as exc:
            raise self._refusal(exc, call) from exc

    def _missing_values(self, form: Any, saved: Any) -> ValidationError | None:
        # The developer's own form or serializer decides what may be empty.
        if not isinstance(form, WriteForm):
            return None
        return missing_values_error(form.instance if saved is None else saved, form.fields)

    def _refusal(self, exc: ValidationError, call: WriteCall) -> ToolError:
        readable_names = {*self.declaration.exposed.object_schema["properties"]}
        readable_names |= {*(call.inputs.properties if call.inputs is not None else ())}
        return ToolError(format_problems(remove_duplicates(error_problems(exc, readable_names))))

    def _not_shown(self, call: WriteCall) -> dict[str, Any]:
        names = hidden_fields(self.declaration, call.written)
        return {NOT_SHOWN: names} if names else {}

    def _shown(self, ctx: Context, obj: Model, alias: str) -> dict[str, Any] | None:
        """Return the object as ``get`` shows it; ``None`` for a caller who may not view it.

        Raises:
            ToolError: the row rule does not include the object.
        """
        declaration = self.declaration
        rows = declaration.rows(ctx).using(alias).filter(pk=obj.pk)
        row = declaration.exposed.prepare(rows, ctx).first()
        if row is None:
            raise ToolError(
                f"Nothing was changed: you would lose access to this {declaration.noun}. Leave "
                "out, or change, the field that sets its owner."
            )
        if not declaration.has_permission(ctx, "view", row):
            return None
        return declaration.exposed.dump(row, ctx)


def _unseen(words: str) -> ToolResult:
    return ToolResult(f"{words} You may not view it.", structured={})


# Tools that write ---------------------------------------------------------------------------------

PREVIEWED = "With preview it returns what would change, and changes nothing."
# Members of a result besides the fields of an object.
_CHANGES: Schema = {
    "type": "object",
    "description": "In a preview: the old and the new value of each field that would change.",
    "additionalProperties": {
        "type": "object",
        "properties": {"from": {}, "to": {}},
        "required": ["from", "to"],
    },
}
_NOT_SHOWN: Schema = {
    "type": "array",
    "items": {"type": "string"},
    "description": "In a preview: fields that would be written and are not shown.",
}
_COUNTS: Schema = {"type": "object", "additionalProperties": {"type": "integer"}}
_IS_PREVIEW: Schema = {"type": "boolean", "description": "Nothing was changed."}


def create_tool(declaration: WriteHooks[Any], *, name: str = "") -> Tool:
    """Return the tool that saves a new object."""
    name = name or f"create_{declaration.singular}"
    arguments = _written_arguments(declaration, name, is_change=False)
    writer = ObjectWriter(declaration=declaration, tool=name)
    words = f"Create one {declaration.noun}."
    hints = {"destructive": False, "idempotent": False}
    schema = _object_schema(declaration, arguments)
    return _tool(writer, "add", writer.create, arguments, schema, words, **hints)


def update_tool(declaration: WriteHooks[Any], *, name: str = "") -> Tool:
    """Return the tool that changes some fields of an object."""
    name = name or f"update_{declaration.singular}"
    arguments = _written_arguments(declaration, name, is_change=True)
    writer = ObjectWriter(declaration=declaration, tool=name)
    words = f"Change the fields of one {declaration.noun} that are sent, and no others."
    hints = {"destructive": True, "idempotent": True}
    schema = _object_schema(declaration, arguments)
    return _tool(writer, "change", writer.update, arguments, schema, words, **hints)


def _written_arguments(
    declaration: WriteHooks[Any], name: str, *, is_change: bool
) -> WriteArguments | DeferredArguments:
    """Return the arguments of a tool that writes values.

    A form or a serializer that runs code of the site is created when it is first used. Fields that
    depend on the caller are described for each caller.
    """
    key = declaration.lookup if is_change else None
    columns = declaration.exposed.columns
    files = [name for name, field in columns.items() if isinstance(field, FileField)]

    def build(principal: Any = None) -> WriteArguments:
        without = declaration.lookup.name if is_change else ""
        inputs = _inputs(declaration, principal, is_change=is_change, without=without)
        if not is_change:
            check_required_columns(declaration, inputs.properties)
        has_preview = declaration.preview
        return WriteArguments(name, key=key, inputs=inputs, files=files, has_preview=has_preview)

    deferred = DeferredArguments(Deferred(build, what=name))
    if declaration.depends_on_caller:
        deferred = CallerArguments(deferred.source, build)
    source = declaration.form or declaration.serializer
    if isinstance(source, type) and runs_own_code(source, "__init__", "get_fields"):
        return deferred
    try:
        built = build()
    except ImproperlyConfigured as exc:
        if not isinstance(exc.__cause__, DatabaseError):
            raise
    except DatabaseError:
        # The tables do not exist yet.
        pass
    else:
        return deferred if declaration.depends_on_caller else built
    return deferred


def delete_tool(declaration: WriteHooks[Any]) -> Tool:
    """Return the tool that deletes an object."""
    name = f"delete_{declaration.singular}"
    writer = ObjectWriter(declaration=declaration, tool=name)
    arguments = WriteArguments(
        name, key=declaration.lookup, inputs=None, has_preview=declaration.preview
    )
    words = f"Delete one {declaration.noun} and what depends on it; the result has the counts."
    more = _PREVIEWED_DELETION if declaration.preview else {}
    schema = {**_DELETED, "properties": {**_DELETED["properties"], **more}}
    return _tool(writer, "delete", writer.delete, arguments, schema, words, destructive=True)


_DELETED: Schema = {
    "type": "object",
    "properties": {
        DELETED: {**_COUNTS, "description": "How many objects of each model were deleted."},
        DETACHED: {
            **_COUNTS,
            "description": "How many objects of each model lost their reference to them.",
        },
        AT_LEAST: {"type": "boolean", "description": "True: these are minimums; more is deleted."},
    },
}
_PREVIEWED_DELETION: Schema = {
    PREVIEW: _IS_PREVIEW,
    "cascade": {**_COUNTS, "description": "In a preview: what would be deleted."},
}


def _tool(
    writer: ObjectWriter,
    action: WriteAction,
    function: Callable[..., Any],
    arguments: WriteArguments | DeferredArguments,
    schema: Schema,
    words: str,
    **hints: Any,
) -> Tool:
    declaration, name = writer.declaration, writer.tool
    on_default = router.db_for_write(declaration.model) == DEFAULT_DB_ALIAS
    return Tool(
        name=name,
        description=" ".join(
            part for part in (words, PREVIEWED * declaration.preview, declaration.doc) if part
        ),
        function=build_function(function, name=name),
        arguments=arguments,
        output=TrustedOutput(schema),
        dry_run=WriteDryRun() if declaration.preview else None,
        # On another database, only the writer itself opens a transaction.
        atomic=True if on_default else None,
        **declaration.access(action),
        **hints,
    )


def _inputs(
    declaration: WriteHooks[Any], principal: Any, *, is_change: bool, without: str = ""
) -> WriteInputs:
    # Only inputs that depend on the caller take a principal.
    caller = {} if principal is None else {"principal": principal}
    # Untranslated: the language of callers is not known at registration.
    with override(None):
        inputs: WriteInputs = _reader(declaration)(
            declaration, is_change=is_change, without=without, **caller
        )
    if not inputs.properties:
        declaration.refuse(
            f"no field can be written except {without!r}, which identifies the object."
        )
    for name in (PREVIEW, CLEAR) if declaration.preview else (CLEAR,):
        if name in inputs.properties:
            declaration.refuse(
                f"{name!r} is a field to write and also an argument of every write tool; leave it "
                "out of write_fields, or give it another name in a form (form = …)."
            )
    return inputs


def _reader(declaration: WriteHooks[Any]) -> Any:
    if declaration.serializer is None:
        return declaration.inputs_class or FormInputs
    # Django REST framework is optional and cannot be imported before settings exist.
    from mcp_django.integrations.models.serializer_inputs import SerializerInputs

    return SerializerInputs


def _object_schema(
    declaration: WriteHooks[Any], arguments: WriteArguments | DeferredArguments
) -> Schema:
    """Return the schema of the object or of its preview; therefore no property is required."""
    schema = declaration.exposed.object_schema
    if not declaration.preview:
        return {"type": "object", "properties": schema["properties"]}
    for name in (PREVIEW, "changes", NOT_SHOWN):
        if name in schema["properties"]:
            declaration.refuse(
                f"fields has {name!r}, which is a member of the preview of a write tool; remove it "
                "from fields, or remove the write tools."
            )
    properties = {**schema["properties"], PREVIEW: _IS_PREVIEW, "changes": _CHANGES}
    # The fields that a deferred form writes are not known yet.
    is_deferred = isinstance(arguments, DeferredArguments)
    written = () if is_deferred else arguments.inputs.properties  # type: ignore[union-attr]
    if is_deferred or hidden_fields(declaration, written):
        properties[NOT_SHOWN] = _NOT_SHOWN
    return {"type": "object", "properties": properties}
