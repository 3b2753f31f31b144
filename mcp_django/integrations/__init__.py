"""Expose the site's existing models, admins, views, forms, REST views and skills as components.

All of them become ordinary tools, resources, templates and prompts, which the server runs like
those that are declared with a decorator.
"""

from __future__ import annotations
