"""The example site with the stage, for servers that tests start."""

from __future__ import annotations

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.transports.urls"
ASGI_APPLICATION = "tests.transports.asgi.application"
