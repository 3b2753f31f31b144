"""``WriteHooks``: what a class says of writing, and the three places where its author steps in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from django.db.models import Model

from mcp_django.core.context import Context
from mcp_django.sources.models import log
from mcp_django.sources.models.declaration import ModelComponents

M = TypeVar("M", bound=Model)


class WriteHooks(ModelComponents[M]):
    """The options of ``create``, ``update`` and ``delete``.

    ``write_fields`` are the columns that callers may write, by default the editable ones of
    ``fields``. ``form`` is a model form to use instead of the one that is made of them;
    ``serializer`` is a model serializer of Django REST framework to use instead.

    ``has_permission`` is asked of the model, which decides whether the tool is there, and then with
    the object: of ``add`` once it is saved, and what is refused is taken back.

    The hooks run within the transaction, and in a preview, too: what must not happen then belongs
    in ``transaction.on_commit``.
    """

    write_fields: Sequence[str] | None = None
    form: type[Any] | None = None
    serializer: type[Any] | None = None
    form_reader: type[Any] | None = None

    def perform_create(self, ctx: Context, form: Any) -> M:
        """Save a new object from a valid form (or serializer) and return it.

        Set what callers do not send: ``form.instance.owner = ctx.user``.
        """
        saved: M = form.save()
        return saved

    def perform_update(self, ctx: Context, form: Any) -> M:
        """Save a changed object from a valid form (or serializer) and return it."""
        saved: M = form.save()
        return saved

    def perform_delete(self, ctx: Context, obj: M) -> None:
        """Delete an object; a model that only hides its rows does that here."""
        obj.delete()

    def record(
        self,
        ctx: Context,
        obj: M,
        key: Any,
        deed: log.Deed,
        *,
        tool: str,
        fields: Iterable[str] = (),
    ) -> None:
        """Leave an entry in the history of an object, whose own key a deleted one has lost."""
        log.record(ctx, obj, key, deed, tool=tool, fields=fields)
