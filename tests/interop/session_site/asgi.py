"""Every mount in one process, and a fast ASGI handler whose connections break."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.interop.session_site.settings")
django.setup()

from channels.routing import URLRouter  # noqa: E402
from django.core.asgi import get_asgi_application as get_django_application  # noqa: E402
from django.urls import re_path  # noqa: E402

from mcp_django.asgi import get_asgi_application  # noqa: E402
from tests.interop.session_site.breaking import Breaking  # noqa: E402
from tests.interop.session_site.mcp import raw  # noqa: E402

lane = get_asgi_application()
application = URLRouter(
    [
        re_path(r"^raw/mcp$", raw.asgi),
        re_path(r"^view/", get_django_application()),
        re_path(r"^breaking/", Breaking(lane)),
        re_path(r"", lane),
    ]
)
