"""The settings of all tests for a site without time zones, whose own clock is far from UTC."""

from tests.settings import *  # noqa: F403

USE_TZ = False
TIME_ZONE = "America/Chicago"
