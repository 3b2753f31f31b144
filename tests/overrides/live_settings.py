"""Settings of worker processes that serve a server and the admin over a shared database."""

from tests.transports.http_session.settings import *  # noqa: F403

ROOT_URLCONF = "tests.overrides.live_urls"
# The two processes sign the same sessions, over plain HTTP.
SESSION_COOKIE_SECURE = False
