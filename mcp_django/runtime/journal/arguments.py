"""What of the arguments of a call goes into the call log.

Their names and a digest always, their values where the site's owner said so, and a secret never.
The digest is keyed: that of a short argument could be guessed otherwise.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
from django.conf import settings
from django.utils.encoding import force_bytes

from mcp_django.core.component import Component
from mcp_django.protocol.errors import clip
from mcp_django.protocol.text import one_line, storable
from mcp_django.schema.secrets import HIDDEN, hides_secret, is_secret, without_secrets
from mcp_django.schema.structure import Path, Schema

SALT = "mcp_django.calls.arguments"
MAX_NAMES = 50
MAX_NAME = 80
MAX_TEXT = 500
MAX_MEMBERS = 50
MAX_DEPTH = 8
# Of all values of one call, as JSON.
MAX_BYTES = 10_000
NOTHING: Schema = {}

_canonical = msgspec.json.Encoder(order="deterministic").encode


def read(given: bytes | Mapping[str, Any]) -> Any:
    """What a client sent as arguments; ``None`` where it is no JSON that can be read."""
    if not isinstance(given, bytes):
        return dict(given)
    try:
        return msgspec.json.decode(given)
    except (ValueError, RecursionError):
        return None


def names(values: Any) -> list[str]:
    """The names of the arguments."""
    found = list(values)[:MAX_NAMES] if isinstance(values, dict) else []
    return [clip(one_line(without_secrets(name[:MAX_TEXT])), limit=MAX_NAME) for name in found]


def digest(values: Any) -> str:
    """The same for the same arguments, in whatever order they were sent."""
    try:
        text = _canonical(values)
    except (ValueError, TypeError, RecursionError):
        return ""
    return hmac.digest(_key(settings.SECRET_KEY), text, "sha256").hex()


@lru_cache(maxsize=2)
def _key(secret: str | bytes) -> bytes:
    """What ``salted_hmac`` would make the key of, for each call anew."""
    return hashlib.sha256(SALT.encode() + force_bytes(secret)).digest()


def are_logged(component: Component, server: Any) -> bool:
    """Whether the values go into the log."""
    wanted = component.log_arguments
    return bool(server.log_arguments if wanted is None else wanted)


def has_secrets(component: Component) -> bool:
    """Whether one of the arguments is not to be logged, so that no text with them may be either."""
    if component.sensitive:
        return True
    properties = schema_of(component).get("properties", {})
    return any(hides_secret(name, member) for name, member in properties.items())


def schema_of(component: Component) -> Schema:
    """The schema of the arguments."""
    source: Any = getattr(component, "arguments", None)
    return source.json_schema if source is not None else NOTHING


def shown(values: Any, component: Component) -> Any:
    """The values for the log: without secrets, and no longer than a page."""
    if not isinstance(values, dict):
        return None
    page = _Page(schema_of(component), frozenset(component.sensitive))
    return page.value(values, ())


@dataclass(slots=True)
class _Page:
    """What is written of one call, with a bound for all of it."""

    schema: Schema
    sensitive: frozenset[str]
    left: int = field(default=MAX_BYTES)

    def value(self, value: Any, path: Path) -> Any:
        if path and is_secret(self.schema, path, sensitive=self.sensitive):
            self.left -= len(HIDDEN)
            return HIDDEN
        if self.left <= 0 or len(path) > MAX_DEPTH:
            return "…"
        if isinstance(value, dict):
            return self._members(value, path)
        if isinstance(value, list):
            return self._items(value, path)
        if isinstance(value, str):
            value = _shortened(value)
        self.left -= len(value) if isinstance(value, str) else 8
        return value

    def _members(self, value: dict[str, Any], path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, member in list(value.items())[:MAX_MEMBERS]:
            key = clip(without_secrets(storable(name[:MAX_TEXT])), limit=MAX_NAME)
            self.left -= len(key)
            found[key] = self.value(member, (*path, name))
        if len(value) > MAX_MEMBERS:
            found["…"] = f"{len(value) - MAX_MEMBERS} more"
        return found

    def _items(self, value: Sequence[Any], path: Path) -> list[Any]:
        found = [self.value(one, (*path, n)) for n, one in enumerate(value[:MAX_MEMBERS])]
        if len(value) > MAX_MEMBERS:
            found.append(f"… {len(value) - MAX_MEMBERS} more")
        return found


def _shortened(text: str) -> str:
    # One that is cut in its middle would not be known for a secret any more.
    text = without_secrets(storable(text[: 4 * MAX_TEXT]))
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… (cut)"
