"""Which fields ask for a secret, by their names and by what they say of themselves.

Secrets are what grants access or authorizes a payment. They must not pass through a client (MCP
2026-07-28, "Elicitation", security), so no form may have a field for one.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from mcp_django.schema.structure import Path, Schema, at

# In a field's name, word by word.
SECRETS = (
    *("password", "passwd", "passphrase", "secret", "apikey", "cvc", "cvv"),
    *("api key", "private key", "card number", "credit card"),
)
# At the end of a name: "token count" is something else.
SECRET_END = "token"

_UNKNOWN: Schema = {"type": "string"}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_secret(root: Schema, path: Path, *, sensitive: Collection[str] = ()) -> bool:
    """Tell whether the value at a path is for nobody to see: by its schema, its name, or its owner.

    What is in a list is called as the list is.
    """
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    if name in sensitive:
        return True
    # A name that nobody declared may be a misspelled one that somebody did.
    members = at(root, path) or [_UNKNOWN]
    return any(asks_for_secret(name, one) for one in members)


def asks_for_secret(name: str, member: Schema) -> bool:
    """Tell whether a field is for a secret; a yes or no and a choice never are."""
    if member.get("writeOnly") or member.get("format") == "password":
        return True
    is_entered = member.get("type") in ("string", "number", "integer")
    if not is_entered or member.get("enum") or member.get("oneOf"):
        return False
    words = f" {' '.join(_WORD.findall(name)).lower()} "
    return words.endswith(f" {SECRET_END} ") or any(f" {one} " in words for one in SECRETS)
