"""``search_fields``: one argument that looks for words in several columns of text."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Annotated, Any

from django.db.models import Q, QuerySet
from pydantic import AfterValidator, Field

from mcp_django.core.context import Context
from mcp_django.core.declare import Argument
from mcp_django.exceptions import ToolError
from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.filters import visible_on_the_way
from mcp_django.sources.models.paths import FieldPath
from mcp_django.sources.models.values import without_nul

if TYPE_CHECKING:
    from mcp_django.sources.models.tools import ModelTools

MAX_CHARACTERS = 200
MAX_WORDS = 10
Text = Annotated[str, Field(max_length=MAX_CHARACTERS), AfterValidator(without_nul)]


class Search:
    """The search of one declaration; a row has each of the words in one of the columns."""

    def __init__(self, declaration: ModelTools[Any]) -> None:
        self._declaration = declaration
        self._paths = [
            declaration.exposed.require(text, option="search_fields")
            for text in declaration.sequence("search_fields")
        ]
        for path in self._paths:
            if path.field.is_relation or Column(path.column).kind != "text":
                declaration.refuse(
                    f"search_fields has {path.text!r}, which is no text; name the text, as "
                    "'customer__name' does."
                )

    @property
    def arguments(self) -> dict[str, Argument]:
        """``search``, where there is something to search."""
        if not self._paths:
            return {}
        where = ", ".join(path.text for path in self._paths)
        return {
            "search": Argument(annotation=Text, description=f"Words, all of which are in {where}.")
        }

    def apply(self, rows: QuerySet[Any], text: str | None, ctx: Context) -> QuerySet[Any]:
        """The rows that have all words.

        Raises:
            ToolError: there are too many of them.
        """
        words = (text or "").split()
        if len(words) > MAX_WORDS:
            raise ToolError(f"search has {len(words)} words, and {MAX_WORDS} are allowed.")
        if not words:
            return rows
        if not any(path.is_many for path in self._paths):
            return rows.filter(reduce(and_, (self._anywhere(word, ctx) for word in words)))
        everything = self._declaration.model._base_manager.using(rows.db)
        for word in words:
            # A join would give a row once for each match.
            rows = rows.filter(pk__in=everything.filter(self._anywhere(word, ctx)).values("pk"))
        return rows

    def _anywhere(self, word: str, ctx: Context) -> Q:
        return reduce(or_, (self._here(path, word, ctx) for path in self._paths))

    def _here(self, path: FieldPath, word: str, ctx: Context) -> Q:
        shown = visible_on_the_way(self._declaration, path, ctx, "icontains", word)
        return reduce(and_, shown.values(), Q(**{f"{path.text}__icontains": word}))
