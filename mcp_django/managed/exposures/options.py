"""What the options of an exposure may be, read strictly: an unknown one is refused, not ignored."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self, TypeVar

from django.core.exceptions import ImproperlyConfigured

from mcp_django.managed.exposures.spec import is_names

OPERATIONS = ("list", "get", "count", "create", "update", "delete")
READING = ("list", "get", "count")
ACTIONS = {"create": "add", "update": "change", "delete": "delete"}
"""What Django calls what each of the writing operations does."""

BECOMES = ("tool", "resource", "prompt", "form")
TYPES: Mapping[str, type] = {
    "text": str,
    "whole number": int,
    "number": float,
    "yes or no": bool,
    "date": dt.date,
}
"""The types that a parameter of an address may have, in words."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one kind of exposure; a subclass has them as fields."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """The options as they are kept in a row.

        Raises:
            ImproperlyConfigured: naming the option, its value and what to write.
        """
        known = {one.name: one for one in fields(cls)}
        found: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                nearest = difflib.get_close_matches(str(name), known, n=1)
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"there is {[*known]}."
                raise ImproperlyConfigured(f"There is no option {str(name)[:80]!r}; {hint}")
            found[name] = cls._read(name, value, known[name].default)
        return cls(**found)

    @classmethod
    def _read(cls, name: str, value: Any, default: Any) -> Any:
        if isinstance(default, tuple):
            if not is_names(value):
                raise ImproperlyConfigured(f"{name} is no list of names: {value!r:.80}.")
            value = tuple(value)
        elif type(value) is not type(default):
            raise ImproperlyConfigured(
                f"{name} is {value!r:.80}; it has to be of the kind of {default!r}."
            )
        allowed = cls.choices.get(name)
        for one in value if isinstance(value, tuple) else (value,):
            if allowed is not None and one not in allowed:
                raise ImproperlyConfigured(
                    f"{name} has {one!r:.80}; there is {', '.join(allowed)}."
                )
        return value

    def stored(self) -> dict[str, Any]:
        """The options as they are kept in a row, without those that are as usual."""
        plain = {one.name: one.default for one in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value != plain[name]
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(Options):
    """What a model exposure offers; the names are those of ``ModelTools`` and ``ModelResource``."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"operations": OPERATIONS}

    fields: tuple[str, ...] = ()
    filter_fields: tuple[str, ...] = ()
    search_fields: tuple[str, ...] = ()
    ordering_fields: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    write_fields: tuple[str, ...] = ()
    operations: tuple[str, ...] = READING
    page_size: int = 50
    plural: str = ""
    description: str = ""
    uri: str = ""
    is_listed: bool = True
    subscribe: bool = False

    @property
    def actions(self) -> tuple[str, ...]:
        """What somebody needs Django's permission for to expose this."""
        return ("view", *(ACTIONS[one] for one in self.operations if one in ACTIONS))

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists in which clients see it."""
        return (*(("tools",) if self.operations else ()), *(("resources",) if self.uri else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions(Options):
    """What a view exposure offers; ``query`` has a parameter and its type: ``season: text``."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"becomes": BECOMES}

    becomes: str = "tool"
    uri: str = ""
    query: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("get",)
    is_readable: bool = True
    title: str = ""
    description: str = ""

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists in which clients see it."""
        return ({"resource": "resources", "prompt": "prompts"}.get(self.becomes, "tools"),)

    @property
    def parameters(self) -> dict[str, type]:
        """The parameters of the address with their types.

        Raises:
            ImproperlyConfigured: one of them cannot be read.
        """
        found: dict[str, type] = {}
        for line in self.query:
            name, _, kind = (part.strip() for part in line.partition(":"))
            if not name.isidentifier() or (kind or "text") not in TYPES or name in found:
                raise ImproperlyConfigured(
                    f"query has {line!r:.80}; write a name of its own and one of "
                    f"{', '.join(TYPES)}, as in 'season: text'."
                )
            found[name] = TYPES[kind or "text"]
        return found
