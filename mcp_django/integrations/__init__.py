"""What the site already has, as components: models, views, forms and REST views.

Everything here ends in ordinary tools, resources, templates and prompts, which the runtime serves
like those that a decorator made.
"""

from __future__ import annotations
