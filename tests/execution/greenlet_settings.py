"""The settings of `greenlet_site`."""

from tests.transports.chunked_settings import *  # noqa: F403

ROOT_URLCONF = "tests.execution.greenlet_site"
