"""The endpoint as a worker process serves it."""

import django

django.setup()

from mcp_django.asgi import get_asgi_application  # noqa: E402

application = get_asgi_application()
