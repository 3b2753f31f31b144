"""Models as tools, resources and prompts; ``fields`` is the list of all that leaves the site."""

from __future__ import annotations
