"""What the processes of a site tell each other through Django's cache, signed.

Keys and answers that decide who somebody is must not be takeable from a cache that other programs
write to, so each entry is signed with the site's key, under its own name. A cache that fails, or an
entry that was tampered with, counts as nothing found.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from django.core import signing
from django.core.cache import cache

logger = logging.getLogger("mcp_django.security")


def get(kind: str, name: str) -> Any:
    """The value that was put there, ``None`` if there is none any more."""
    entry = entry_name(kind, name)
    try:
        found = cache.get(entry)
    except Exception:  # the site's cache, which may be a service that is down
        logger.exception("The cache could not be read for %r.", kind)
        return None
    if found is None:
        return None
    try:
        return signing.loads(found, salt=entry)
    except (signing.BadSignature, TypeError, AttributeError):
        logger.warning("An entry of kind %r in the cache is not signed by this site.", kind)
        return None


def put(kind: str, name: str, value: Any, *, seconds: float) -> None:
    """Keep a value that JSON can say, for so many seconds."""
    entry = entry_name(kind, name)
    try:
        cache.set(entry, signing.dumps(value, salt=entry, compress=True), timeout=seconds)
    except Exception:  # as above
        logger.exception("The cache could not be written for %r.", kind)


def is_first(kind: str, name: str, *, seconds: float) -> bool:
    """Whether nobody has asked this within so many seconds; yes, where nothing can tell."""
    try:
        return bool(cache.add(entry_name(kind, name), "1", timeout=seconds))
    except Exception:  # as above
        logger.exception("The cache could not be written for %r.", kind)
        return True


def entry_name(kind: str, name: str) -> str:
    """What the entry is called in the cache: short and printable, whatever the name is."""
    return f"mcp_django:{kind}:{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()}"
