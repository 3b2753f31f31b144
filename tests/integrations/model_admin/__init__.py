"""The site's admin as a source."""

from __future__ import annotations
