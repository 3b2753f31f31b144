"""Both mounts in one process: the fast ASGI handler under `/lane`, the raw one under `/raw`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.interop.asking_site.settings")
django.setup()

from channels.routing import URLRouter  # noqa: E402
from django.urls import re_path  # noqa: E402

from mcp_django.asgi import get_asgi_application  # noqa: E402
from tests.interop.asking_site.mcp import asking  # noqa: E402

application = URLRouter(
    [
        re_path(r"^raw/mcp$", asking.asgi),
        re_path(r"", get_asgi_application()),
    ]
)
