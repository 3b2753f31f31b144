"""A contract as text that changes by a line where one thing changes, and the digests in it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

DIGEST = "digest"


def text_of(value: Any) -> str:
    """The file: sorted, a member to a line, ended by a line break."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def digest_of(value: Any) -> str:
    """The SHA-256 digest of a value: of its compact JSON with sorted members, in UTF-8."""
    compact = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(compact.encode(errors='surrogatepass')).hexdigest()}"


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    """The object with its own digest in it."""
    bare = {name: one for name, one in value.items() if name != DIGEST}
    return {DIGEST: digest_of(bare), **bare}


def is_sealed(value: Any) -> bool:
    """Whether an object is what its digest was made of."""
    return isinstance(value, dict) and sealed(value)[DIGEST] == value.get(DIGEST)
