"""Text from outside as it can be kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def storable(value: Any) -> Any:
    """A value of JSON without what a database does not store: NUL, and halves of surrogate pairs.

    They become U+FFFD, in text and in the names and items within.
    """
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "\ufffd")
    if isinstance(value, Mapping):
        return {storable(key): storable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [storable(one) for one in value]
    return value
