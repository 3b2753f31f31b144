"""``ExposureSpec``: what one row says, as a value that can be compared and kept.

A row may hold anything, as whoever writes to the database may. What cannot be meant is a ``flaw``,
and such an exposure is not offered: a list of groups that cannot be read must not open it to all.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import router

from mcp_django.storage.databases import tables

# As much as a form could write, and less than what would keep a process busy.
MAX_CHARACTERS = 100_000
MAX_NAMES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureSpec:
    """One exposure; ``options`` is JSON text, and ``flaw`` says what of the row cannot be meant."""

    pk: int
    kind: str
    server: str
    target: str
    name: str = ""
    options: str = "{}"
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    flaw: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.target!r} on the server {self.server!r}"

    def read(self) -> dict[str, Any]:
        """The options.

        Raises:
            ImproperlyConfigured: the row cannot be meant as it is.
        """
        if self.flaw:
            raise ImproperlyConfigured(self.flaw)
        found: dict[str, Any] = json.loads(self.options)
        return found


COLUMNS = ("pk", "kind", "server", "target", "name", "options", "groups", "permissions", "scopes")


def read_exposures() -> dict[str, tuple[ExposureSpec, ...]]:
    """The enabled exposures by the name of their server, the oldest first."""
    model = tables.Exposure
    rows = model._default_manager.using(router.db_for_write(model)).filter(is_enabled=True)
    found: dict[str, list[ExposureSpec]] = defaultdict(list)
    for row in rows.order_by("pk").values(*COLUMNS):
        spec = spec_from(row)
        found[spec.server].append(spec)
    return {server: tuple(specs) for server, specs in found.items()}


def spec_of(row: Any) -> ExposureSpec:
    """What a row says; never fails."""
    return spec_from({name: getattr(row, name) for name in COLUMNS})


def spec_from(values: dict[str, Any]) -> ExposureSpec:
    """What the columns of a row say; never fails."""
    flaws = list(_flaws(values))
    lists = ("groups", "permissions", "scopes")
    return ExposureSpec(
        pk=values["pk"] or 0,
        kind=str(values["kind"]),
        server=str(values["server"]),
        target=str(values["target"]),
        name=str(values["name"]),
        options="{}" if flaws else _text_of(values["options"]),
        **{name: () if flaws else tuple(values[name]) for name in lists},
        flaw=" ".join(flaws),
    )


def _flaws(values: dict[str, Any]) -> Iterator[str]:
    for name in ("groups", "permissions", "scopes"):
        if not is_names(values[name]):
            yield f"{name} is no list of names."
    options = values["options"]
    if not isinstance(options, dict):
        yield "options is no object with names."
        return
    try:
        text = _text_of(options)
    except (TypeError, ValueError, RecursionError):
        yield "options is no JSON."
        return
    if len(text) > MAX_CHARACTERS:
        yield f"options has more than {MAX_CHARACTERS} characters."


def is_names(value: Any) -> bool:
    """Whether something is a list of names, and not too long a one."""
    return isinstance(value, list | tuple) and len(value) <= MAX_NAMES and all(map(_is_name, value))


def _is_name(value: Any) -> bool:
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    try:
        # Half a surrogate pair, which JSON can hold, is in no page that is sent.
        return bool(value.encode())
    except UnicodeEncodeError:
        return False


def _text_of(options: dict[str, Any]) -> str:
    return json.dumps(options, sort_keys=True, allow_nan=False)
