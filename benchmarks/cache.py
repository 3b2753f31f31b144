"""The cache directory of the database file and the peers' environments."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory, created if missing: ``BENCH_CACHE``, or one in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    found = Path(os.environ.get("BENCH_CACHE") or Path(base) / "mcp-django-benchmarks")
    found.mkdir(parents=True, exist_ok=True)
    return found
