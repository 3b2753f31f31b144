"""A URLconf that fails while it is imported."""

from __future__ import annotations

raise ZeroDivisionError("no routes")
