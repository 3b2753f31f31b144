"""``ExposedFields``: the ``fields`` of a class as a tree, which is all that leaves the site.

Output, filters, search and ordering ask it, so that there is one allow-list. A relation is followed
where a path says so; named alone it gives the key of the related object, and its label to those
who may view that object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Field, Model, QuerySet

from mcp_django.core.context import Context
from mcp_django.schema.portable import portable_output
from mcp_django.schema.structure import Schema
from mcp_django.sources.models.labels import Blanks
from mcp_django.sources.models.paths import FieldPath, nearest, own_names, resolve
from mcp_django.sources.models.tree import Node

if TYPE_CHECKING:
    from mcp_django.sources.models.declaration import ModelComponents


# What is asked of each row, and so can leave out what a caller may not see.
ROW_BY_ROW = frozenset({"filter_fields", "search_fields"})


class ExposedFields:
    """The allow-list of one declaration."""

    def __init__(
        self, model: type[Model], fields: Sequence[str], *, declaration: ModelComponents[Any]
    ) -> None:
        self.model = model
        self._declaration = declaration
        self.paths = {text: self._resolve(text) for text in self._names(fields)}
        self.tree = Node(model, declaration.server)
        for path in self.paths.values():
            self.tree.add(path)
        for name in self.tree.clashes():
            raise ImproperlyConfigured(
                f"{declaration}: fields has {name!r}, which has the name of something shown beside "
                "it; name the relation alone, or only what is behind it."
            )

    # What there is --------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> dict[str, Field[Any, Any]]:
        """The model's own columns by the name that they have in answers."""
        return {
            text: path.field
            for text, path in self.paths.items()
            if not path.hops and not path.is_relation
        }

    @cached_property
    def schema(self) -> Schema:
        """The schema of one object in answers, in the portable subset."""
        return portable_output(self.tree.schema())

    def require(self, text: str, *, option: str) -> FieldPath:
        """The path that an option names.

        Raises:
            ImproperlyConfigured: it leads nowhere, or out of ``fields``: who could filter, search
                or sort by a hidden value could find it out.
        """
        what = f"{self._declaration}: {option}"
        path = resolve(self.model, text, what=what)
        if text in self.paths or self._is_other_name(path):
            if option not in ROW_BY_ROW and not path.is_many:
                self._refuse_behind_rows(path, what)
            return path
        raise ImproperlyConfigured(
            f"{what} has {text!r}, which is not in fields, and would tell of it; add it to fields. "
            f"For now {nearest(text, self.paths)}"
        )

    def gated(self, path: FieldPath) -> dict[str, type[Model]]:
        """The relations on the way, by their paths, that show rows only to those who may see them.

        Their end is one of them. Whoever uses the path has to leave those rows out.
        """
        found: dict[str, type[Model]] = {}
        node = self.tree
        for number, name in enumerate(path.names, start=1):
            relation = node.relations.get(name)
            if relation is None:
                break
            if relation.labelled and (relation.is_many or not relation.field.concrete):
                found["__".join(path.names[:number])] = relation.node.model
            node = relation.node
        return found

    def _refuse_behind_rows(self, path: FieldPath, what: str) -> None:
        for alone in self.gated(path):
            if alone != path.text:
                raise ImproperlyConfigured(
                    f"{what} has {path.text!r}, and fields has {alone!r} alone, too, which is "
                    f"shown to those only who may see it; leave {alone!r} out of fields, or "
                    f"{path.text!r} out of this."
                )

    # What leaves the site -------------------------------------------------------------------------

    def prepare(self, queryset: QuerySet[Any], ctx: Context) -> QuerySet[Any]:
        """The query, told to load what ``dump`` needs in a fixed number of statements."""
        return self.tree.prepare(queryset, ctx)

    def dump(self, obj: Model, ctx: Context) -> dict[str, Any]:
        """One object of a prepared query as plain JSON."""
        return self.dump_all([obj], ctx)[0]

    def dump_all(self, objects: Iterable[Model], ctx: Context) -> list[dict[str, Any]]:
        """Objects of a prepared query as plain JSON, with one statement for labels of a model."""
        blanks = Blanks(self._declaration.server)
        rows = [self.tree.dump(obj, blanks) for obj in objects]
        blanks.fill(ctx)
        return rows

    def rows(self, queryset: QuerySet[Any], ctx: Context) -> list[dict[str, Any]]:
        """Every object of a query as plain JSON."""
        return self.dump_all(self.prepare(queryset, ctx), ctx)

    # Reading the option ---------------------------------------------------------------------------

    def _names(self, fields: Sequence[str]) -> list[str]:
        if not fields:
            known = ", ".join(own_names(self.model))
            raise ImproperlyConfigured(
                f"{self._declaration}: fields is missing; name what callers may see of: {known}."
            )
        doubled = sorted({name for name in fields if list(fields).count(name) > 1})
        if doubled:
            raise ImproperlyConfigured(
                f"{self._declaration}: fields has {', '.join(doubled)} more than once."
            )
        return list(fields)

    def _resolve(self, text: str) -> FieldPath:
        return resolve(self.model, text, what=f"{self._declaration}: fields")

    def _is_other_name(self, path: FieldPath) -> bool:
        """A foreign key and its column hold the same."""
        return any(
            path.hops == other.hops and path.field == other.field
            for other in self.paths.values()
            if path.field.is_relation
        )
