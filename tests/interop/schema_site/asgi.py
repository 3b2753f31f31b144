"""The site."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.interop.schema_site.settings")
django.setup()

from mcp_django.asgi import get_asgi_application  # noqa: E402

application = get_asgi_application()
