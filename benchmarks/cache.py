"""Where what takes long to make is kept: the database file and the peers' environments."""

from __future__ import annotations

import os
from pathlib import Path


def directory() -> Path:
    """The directory, made if it is missing: ``BENCH_CACHE``, or one in the user's own cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    found = Path(os.environ.get("BENCH_CACHE") or Path(base) / "mcp-django-benchmarks")
    found.mkdir(parents=True, exist_ok=True)
    return found
