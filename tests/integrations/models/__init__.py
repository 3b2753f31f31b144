"""Models of the site as tools and resources."""

from __future__ import annotations
