"""The objects of a model as entries of ``resources/list``.

They are in the order of their URI's variables, which no two objects share and which the list shows
anyway: so the place in a cursor tells nothing, and the hidden key is not needed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Length
from django.utils import timezone

from mcp_django.core.context import Context
from mcp_django.core.resource import Entry, EntryPage
from mcp_django.exceptions import InvalidParams
from mcp_django.protocol.content import Annotations
from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.guarding import asked, sees_all
from mcp_django.sources.models.paths import FieldPath
from mcp_django.sources.models.variables import names_in, read, value_of

if TYPE_CHECKING:
    from mcp_django.sources.models.resource import ModelResource

# A cursor has room for so many characters of text, and one variable or several share it.
MAX_LISTED_TEXT = 400
MAX_TITLE = 200


class Listing:
    """How the objects of one declaration are listed; ``page`` is the port of the list method."""

    def __init__(self, declaration: ModelResource[Any]) -> None:
        self._declaration = declaration
        self._variables = declaration.variables
        self._title = _column(declaration, "title", kinds=("text", "integer", "uuid", "date"))
        self._modified = _column(declaration, "last_modified", kinds=("datetime",))
        shown = (*self._variables.paths.values(), self._title, self._modified)
        self._paths = [path for path in shown if path is not None]

    def page(self, ctx: Context, after: list[Any] | None, limit: int) -> EntryPage:
        """At most so many objects behind a place in the order of their URIs."""
        rows = self._rows(ctx)
        if after is not None:
            rows = rows.filter(self._behind(after))
        found = visible(self._declaration, ctx, rows, limit + 1, paths=self._paths)
        kept = found[:limit]
        shown = [entry for entry in map(self._entry, kept) if entry is not None]
        return EntryPage(entries=shown, after=self._place(kept[-1]) if len(found) > limit else None)

    def _rows(self, ctx: Context) -> QuerySet[Model]:
        rows: QuerySet[Model] = self._declaration.rows(ctx)
        rows = rows.filter(present(self._variables.paths.values()))
        texts = [path for path in self._variables.paths.values() if _is_text(path)]
        room = MAX_LISTED_TEXT // max(len(texts), 1)
        for number, path in enumerate(texts):
            if (path.column.max_length or room + 1) > room:
                rows = rows.alias(**{f"length_{number}": Length(path.expression)})
                rows = rows.filter(**{f"length_{number}__lte": room})
        return rows.order_by(*self._variables.expressions)

    def _behind(self, after: list[Any]) -> Q:
        """What comes after an object with these values in the order of the variables."""
        paths = list(self._variables.paths.values())
        try:
            values = [read(path, text) for path, text in zip(paths, after, strict=True)]
        except (TypeError, ValueError):
            raise InvalidParams("The cursor is not valid here; begin again without one") from None
        behind, same = Q(), Q()
        for path, value in zip(paths, values, strict=True):
            behind |= same & Q(**{f"{path.expression}__gt": value})
            same &= Q(**{path.expression: value})
        return behind

    def _place(self, obj: Model) -> list[Any]:
        texts = self._variables.texts(obj)
        assert texts is not None, "rows without these values are left out by the query"
        return list(texts.values())

    def _entry(self, obj: Model) -> Entry | None:
        """An object as an entry; ``None`` for one that no URI can name."""
        texts = self._variables.texts(obj)
        uri = self._variables.uri(texts)
        if uri is None or texts is None:
            return None
        name = " ".join(texts.values())
        noun = self._declaration.noun.capitalize()
        return Entry(
            uri=uri,
            name=name,
            title=self.title_of(obj) or f"{noun} {name}",
            mime_type="application/json",
            annotations=self.annotations_of(obj),
        )

    def title_of(self, obj: Model) -> str:
        """What the field that is the title says."""
        value = None if self._title is None else value_of(obj, self._title)
        return "" if value is None else str(value)[:MAX_TITLE]

    def annotations_of(self, obj: Model) -> Annotations | None:
        """When the object was last modified, if a field says so."""
        moment = None if self._modified is None else value_of(obj, self._modified)
        return None if moment is None else Annotations(last_modified=_aware(moment))


def visible(
    declaration: ModelResource[Any],
    ctx: Context,
    rows: QuerySet[Model],
    limit: int,
    *,
    paths: Sequence[FieldPath],
) -> list[Model]:
    """The first objects that the caller may view, with what stands at these paths loaded."""
    rows = rows.select_related(*names_in(paths)) if names_in(paths) else rows
    if sees_all(declaration, ctx):
        return list(rows.only(*(path.expression for path in paths))[:limit])
    return list(islice(asked(declaration, ctx, rows), limit))


def present(paths: Any) -> Q:
    """Rows that have a value at each of these paths."""
    wanted = Q()
    for path in paths:
        if path.is_nullable:
            wanted &= Q(**{f"{path.expression}__isnull": False})
    return wanted


def _column(
    declaration: ModelResource[Any], option: str, *, kinds: Sequence[str]
) -> FieldPath | None:
    name = getattr(declaration, option)
    if not name:
        return None
    path = declaration.exposed.require(name, option=option)
    if path.is_many or path.is_relation or Column(path.field).kind not in kinds:
        declaration.refuse(f"{option} = {name!r}; name one field that holds {' or '.join(kinds)}.")
    return path


def _is_text(path: FieldPath) -> bool:
    return Column(path.column).kind == "text"


def _aware(moment: dt.datetime) -> dt.datetime:
    """A moment with an offset, which the protocol wants; without one it is the site's own time."""
    if timezone.is_aware(moment):
        return moment.astimezone(dt.UTC)
    return timezone.make_aware(moment, timezone.get_default_timezone())
