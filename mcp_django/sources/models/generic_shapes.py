"""What each generic tool takes, whatever the model: names and kinds of its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp_django.schema.structure import Schema
from mcp_django.sources.models.arguments import CLEAR, PREVIEW


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a generic tool takes beside ``model``.

    ``within`` is the argument that holds those of the model's tool which differ from model to
    model; ``plain`` are those that are called alike everywhere.
    """

    plain: Mapping[str, Schema] = field(default_factory=dict)
    within: str = ""
    words: str = ""
    has_key: bool = False
    required: tuple[str, ...] = ()

    @property
    def properties(self) -> dict[str, Schema]:
        """All of them."""
        key: Schema = {"type": "string", "description": "Which record, by the key of its model."}
        inner: Schema = {
            "type": "object",
            "description": self.words,
            "additionalProperties": True,
        }
        return {
            **({"key": key} if self.has_key else {}),
            **({self.within: inner} if self.within else {}),
            **self.plain,
        }


_SEARCH: Schema = {"type": "string", "description": "Words to look for."}
_FILTERS = 'What a record has to fulfill: {"status": "open", "total__gte": 10}.'
_PREVIEW: Schema = {
    "type": "boolean",
    "description": "True: answers with what would change, and changes nothing.",
}
_CLEAR: Schema = {"type": "array", "items": {"type": "string"}, "description": "Fields to empty."}
_VALUES = "The fields to write, by name."

LIST = Shape(
    within="filters",
    words=_FILTERS,
    plain={
        "search": _SEARCH,
        "order_by": {"type": "string", "description": "A field, with - the other way round."},
        "limit": {"type": "integer", "minimum": 1, "description": "How many."},
        "cursor": {"type": "string", "description": "next_cursor of the page before."},
    },
)
COUNT = Shape(
    within="filters",
    words=_FILTERS,
    plain={
        "search": _SEARCH,
        "group_by": {"type": "string", "description": "A field whose values are counted apart."},
        **{
            f"{kind}_of": {"type": "string", "description": f"A field, for its {noun}."}
            for kind, noun in (
                ("sum", "sum"),
                ("avg", "average"),
                ("min", "smallest value"),
                ("max", "largest value"),
            )
        },
    },
)
GET = Shape(has_key=True, required=("key",))
CREATE = Shape(within="values", words=_VALUES, plain={PREVIEW: _PREVIEW}, required=("values",))
UPDATE = Shape(
    within="values",
    words=_VALUES,
    plain={CLEAR: _CLEAR, PREVIEW: _PREVIEW},
    has_key=True,
    required=("key",),
)
DELETE = Shape(plain={PREVIEW: _PREVIEW}, has_key=True, required=("key",))
DESCRIBE = Shape()
SHAPES: Mapping[str, Shape] = {
    "list": LIST,
    "get": GET,
    "count": COUNT,
    "create": CREATE,
    "update": UPDATE,
    "delete": DELETE,
}
