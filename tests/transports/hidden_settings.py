"""Settings of a process that serves the servers with hidden tools, and logs calls as sites do."""

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.transports.hidden_site"
ASGI_APPLICATION = "tests.transports.hidden_site.application"
