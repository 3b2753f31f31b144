"""``create``, ``update`` and ``delete``: one object written through the site's own rules.

A write runs in a transaction and ends with a look through the row gate: what its caller could not
see afterwards is not kept, so that nobody writes an object into, or out of, another tenancy. A
preview does all of it and takes it back.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import DataError, IntegrityError, connections, router, transaction
from django.db.models import AutoField, BigAutoField, Model, SmallAutoField
from django.db.models.deletion import ProtectedError, RestrictedError

from mcp_django.core.context import Context
from mcp_django.exceptions import ToolError
from mcp_django.protocol.content import ToolResult
from mcp_django.schema.arguments import InvalidArguments, describe
from mcp_django.sources.models.arguments import Inputs, WriteCall
from mcp_django.sources.models.cascade import Counts, cascade, protected
from mcp_django.sources.models.forms import WriteForm
from mcp_django.sources.models.guarding import may_this
from mcp_django.sources.models.hooks import WriteHooks
from mcp_django.sources.models.locking import begin_writing, lock
from mcp_django.sources.models.preview import NOT_SHOWN, difference, not_shown, taken_back
from mcp_django.sources.models.reading import first
from mcp_django.sources.models.repair import once, problems_in
from mcp_django.sources.models.required import empty_ones
from mcp_django.sources.models.written import Written

logger = logging.getLogger("mcp_django")

# Keys that the database counts up, whatever happens to the row.
COUNTED = (AutoField, BigAutoField, SmallAutoField)

Deed = Literal["add", "change", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One of the write tools of a declaration."""

    declaration: WriteHooks[Any]
    tool: str
    inputs: Inputs | None = None

    # What the tools do ----------------------------------------------------------------------------

    def create(self, ctx: Context, given: dict[str, Any]) -> Any:
        """Save a new object and show it."""
        call: WriteCall = given["call"]
        if not self.declaration.has_permission(ctx, "add"):
            raise PermissionDenied(f"You may not add {self.declaration.nouns}.")
        with self._writing(call) as alias:
            form = self._bind(ctx, call, None)
            saved = self._saved_new(ctx, form)
            obj = form.instance if saved is None else saved
            if not self.declaration.has_permission(ctx, "add", obj):
                raise PermissionDenied(f"You may not add this {self.declaration.noun}.")
            shown = self._shown(ctx, obj, alias)
            if call.preview:
                changes = difference({}, self._without_key(shown or {}))
                return _preview(changes=changes, **self._not_shown(call))
            self.declaration.record(ctx, obj, obj.pk, "add", tool=self.tool)
        return _unseen("It was saved.") if shown is None else shown

    def update(self, ctx: Context, given: dict[str, Any]) -> Any:
        """Change the named fields of an object and show it."""
        call: WriteCall = given["call"]
        if not call.written:
            assert self.inputs is not None
            known = ", ".join(self.inputs.properties)
            raise ToolError(f"There is nothing to change: send at least one of {known}.")
        with self._writing(call) as alias:
            obj = self._find(ctx, call, "change", alias)
            before = self._shown(ctx, obj, alias) if call.preview else None
            written = Written(obj, call.written)
            form = self._bind(ctx, call, obj)
            saved = self._checked(self.declaration.perform_update, ctx, form)
            obj = form.instance if saved is None else saved
            shown = self._shown(ctx, obj, alias)
            if call.preview:
                changes = difference(before or {}, shown or {})
                return _preview(changes=changes, **self._not_shown(call))
            self.declaration.record(
                ctx, obj, obj.pk, "change", tool=self.tool, fields=written.changed(obj)
            )
        return _unseen("It was changed.") if shown is None else shown

    def delete(self, ctx: Context, given: dict[str, Any]) -> Any:
        """Delete an object and say what went with it."""
        call: WriteCall = given["call"]
        with self._writing(call) as alias:
            obj = self._find(ctx, call, "delete", alias)
            gone = cascade(obj, alias=alias, server=self.declaration.server, ctx=ctx)
            # Deletion takes the key from an object.
            kept = copy.copy(obj)
            try:
                self._checked(self.declaration.perform_delete, ctx, obj)
            except (ProtectedError, RestrictedError) as exc:
                server = self.declaration.server
                raise protected(exc, kept, alias=alias, server=server, ctx=ctx) from exc
            gone = self._really_gone(ctx, kept, gone, alias)
            if call.preview:
                return _preview(cascade=gone.pop("deleted", {}), **gone)
            self.declaration.record(ctx, kept, kept.pk, "delete", tool=self.tool)
        return {"deleted": {}, **gone}

    def _really_gone(
        self, ctx: Context, obj: Model, gone: dict[str, Counts], alias: str
    ) -> dict[str, Counts]:
        """A site may keep the row and only hide it, and then nothing else went with it."""
        model = self.declaration.model
        if not model._base_manager.using(alias).filter(pk=obj.pk).exists():
            return gone
        is_seen = self.declaration.rows(ctx).using(alias).filter(pk=obj.pk).exists()
        return {} if is_seen else {"deleted": {model._meta.label: 1}}

    # Steps ----------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self, call: WriteCall) -> Iterator[str]:
        """A transaction on the database of the model, which a preview takes back."""
        alias = router.db_for_write(self.declaration.model)
        around = taken_back(alias) if call.preview else transaction.atomic(using=alias)
        try:
            with around:
                begin_writing(alias, self.declaration.model)
                yield alias
                _check_deferred(alias)
        except (IntegrityError, DataError) as exc:
            logger.warning("The database refused what %s wrote.", self.tool, exc_info=exc)
            raise ToolError(
                "The database refused this, and nothing was changed: a value that has to be "
                "unique is taken, one is missing or does not fit, or what it refers to is gone."
            ) from exc

    def _find(self, ctx: Context, call: WriteCall, deed: Deed, alias: str) -> Model:
        """The object, held until the end; hidden and missing ones answer alike."""
        declaration = self.declaration
        key = {declaration.lookup.name: call.key}
        rows = declaration.rows(ctx).using(alias).filter(**key)
        obj = first(declaration, ctx, rows, key)
        if lock(obj, alias):
            # Somebody else may have changed it while we waited.
            obj = first(declaration, ctx, rows.all(), key)
        # A class with rules of its own is asked about the object, whatever it says of the model.
        if not declaration.has_permission(ctx, deed, obj):
            raise PermissionDenied(f"You may not {deed} this {declaration.noun}.")
        return obj

    def _bind(self, ctx: Context, call: WriteCall, instance: Model | None) -> Any:
        assert self.inputs is not None
        try:
            return self.inputs.bind(ctx, call, instance)
        except InvalidArguments as exc:
            raise ToolError(str(exc)) from exc

    def _checked(self, perform: Callable[[Context, Any], Any], ctx: Context, subject: Any) -> Any:
        """Run a hook; what a model finds wrong while it is saved may be a hidden value."""
        try:
            return perform(ctx, subject)
        except ValidationError as exc:
            raise self._refusal(exc) from exc

    def _saved_new(self, ctx: Context, form: Any) -> Any:
        """Save a new object; of what a hook was to fill, nothing is left empty.

        Raises:
            ToolError: a column that the model requires has no value.
        """
        try:
            saved = self._checked(self.declaration.perform_create, ctx, form)
        except IntegrityError as exc:
            if problem := self._left_empty(form, None):
                raise self._refusal(problem) from exc
            raise
        if problem := self._left_empty(form, saved):
            raise self._refusal(problem)
        return saved

    def _left_empty(self, form: Any, saved: Any) -> ValidationError | None:
        # The author's own form or serializer says itself what may be left empty.
        if not isinstance(form, WriteForm):
            return None
        return empty_ones(form.instance if saved is None else saved, form.fields)

    def _refusal(self, exc: ValidationError) -> ToolError:
        known = {*self.declaration.exposed.schema["properties"]}
        known |= {*(self.inputs.properties if self.inputs is not None else ())}
        return ToolError(describe(once(problems_in(exc, known))))

    def _not_shown(self, call: WriteCall) -> dict[str, Any]:
        names = not_shown(self.declaration, call.written)
        return {NOT_SHOWN: names} if names else {}

    def _shown(self, ctx: Context, obj: Model, alias: str) -> dict[str, Any] | None:
        """The object as ``get`` would show it; ``None`` for a caller who may not view it.

        Raises:
            ToolError: it is outside of the row gate.
        """
        declaration = self.declaration
        rows = declaration.rows(ctx).using(alias).filter(pk=obj.pk)
        found = declaration.exposed.prepare(rows, ctx).first()
        if found is None:
            raise ToolError(
                f"Nothing was changed: afterwards this {declaration.noun} would be one that you "
                "may not see. Leave out, or change, what says whose it is."
            )
        if not may_this(declaration, ctx, "view", found):
            return None
        return declaration.exposed.dump(found, ctx)

    def _without_key(self, shown: dict[str, Any]) -> dict[str, Any]:
        """What a preview may promise: the next number is another one when it is saved."""
        key = self.declaration.model._meta.pk
        is_counted = isinstance(key, COUNTED)
        return {
            name: value for name, value in shown.items() if not (is_counted and name == key.name)
        }


def _preview(**found: Any) -> dict[str, Any]:
    return {"preview": True, **found}


def _unseen(words: str) -> ToolResult:
    return ToolResult(f"{words} You may not view it.", structured={})


def _check_deferred(alias: str) -> None:
    """Ask a database that checks references at the commit now, while it can still be said."""
    if connections[alias].vendor == "postgresql":
        connections[alias].check_constraints()
