"""The site as a WSGI application: ``/mcp`` is the view, and ``/floor`` has views to compare."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site.settings")

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
