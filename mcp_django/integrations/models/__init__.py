"""Models as tools, resources and prompts; ``fields`` lists all model data that leaves the site."""

from __future__ import annotations
