"""A URLconf that fails while it is imported."""

raise ZeroDivisionError("no routes")
