"""The example site in a process of its own, whose REST API is recorded."""

from tests.settings import *  # noqa: F403 - the site of the suite, but for its rows and addresses

ROOT_URLCONF = "tests.integrations.rest.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
