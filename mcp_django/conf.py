"""The ``MCP_DJANGO`` setting as a typed, frozen object.

One dictionary; every key has a default. ``get_settings()`` reads it once and again whenever
Django says that the setting changed, so ``override_settings`` works in tests.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, MinLen
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from pydantic import TypeAdapter, ValidationError

from mcp_django.protocol.content import Icon
from mcp_django.protocol.revisions import MODERN

SERVED_VERSIONS = tuple(revision.version for revision in MODERN)
Seconds = Annotated[float, Gt(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values in force. Times are seconds, sizes are bytes; docs/settings.md explains each."""

    title: str = ""
    instructions: str = ""
    icons: tuple[Icon, ...] = ()
    protocol_versions: Annotated[tuple[str, ...], MinLen(1)] = SERVED_VERSIONS
    base_url: str = ""
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: Annotated[int, Gt(0)] = 4 * 1024 * 1024

    auth: tuple[str, ...] = ("tokens",)
    scope_implies: dict[str, tuple[str, ...]] | None = None
    list_filter: Literal["permissions", "scopes"] = "permissions"

    threads: Annotated[int, Ge(1)] = 8
    queue: Annotated[int, Ge(0)] = 64
    queue_seconds: Seconds = 10
    call_timeout: Seconds = 300
    max_result_bytes: Annotated[int, Ge(1000)] = 100_000
    page_size: Annotated[int, Ge(1)] = 100

    keepalive_seconds: Seconds = 15
    drain_seconds: Seconds = 25
    streams_per_principal: Annotated[int, Ge(1)] = 100


KEYS = tuple(field.name.upper() for field in fields(Settings))
_adapter = TypeAdapter(Settings)


def problems(values: object) -> list[tuple[str, str]]:
    """Everything wrong with a value of ``MCP_DJANGO``, as (what, hint) pairs for the checks."""
    if not isinstance(values, Mapping):
        return [("MCP_DJANGO is not a dictionary.", "Write MCP_DJANGO = {}.")]
    found = [_unknown_key(str(key)) for key in values if key not in KEYS]
    try:
        _read({key: value for key, value in values.items() if key in KEYS})
    except ValidationError as exc:
        for error in exc.errors(include_url=False, include_input=False):
            key, *within = error["loc"]
            place = f"MCP_DJANGO[{str(key).upper()!r}]" + "".join(f"[{one!r}]" for one in within)
            found.append((f"{place}: {error['msg']}.", "See docs/settings.md."))
    unserved = [v for v in _versions(values) if v not in SERVED_VERSIONS]
    if unserved:
        found.append(
            (
                f"MCP_DJANGO['PROTOCOL_VERSIONS'] names {', '.join(map(repr, unserved))}.",
                f"This release serves {', '.join(SERVED_VERSIONS)}.",
            )
        )
    return found


def _versions(values: Mapping[Any, Any]) -> list[str]:
    versions = values.get("PROTOCOL_VERSIONS", ())
    return [str(v) for v in versions] if isinstance(versions, (list, tuple)) else []


def _unknown_key(key: str) -> tuple[str, str]:
    nearest = difflib.get_close_matches(key.upper(), KEYS, n=1)
    hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known keys: {', '.join(KEYS)}."
    return f"MCP_DJANGO has no key {key!r}.", hint


def _read(values: Mapping[str, Any]) -> Settings:
    return _adapter.validate_python({key.lower(): value for key, value in values.items()})


@cache
def get_settings() -> Settings:
    """The settings in force.

    Raises:
        ImproperlyConfigured: a key is unknown or has a value of the wrong kind.
    """
    values = getattr(django_settings, "MCP_DJANGO", {})
    found = problems(values)
    if found:
        raise ImproperlyConfigured(" ".join(f"{what} {hint}" for what, hint in found))
    return _read(values)


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP_DJANGO":
        get_settings.cache_clear()


setting_changed.connect(_reload, dispatch_uid="mcp_django.conf")
