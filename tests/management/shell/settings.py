"""A small site without LOGGING; environment variables choose what is wrong with it."""

import os

SECRET_KEY = "only for tests, and no secret at all: " + "x" * 30
USE_TZ = True
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "mcp_django"]
ROOT_URLCONF = os.environ.get("SHELL_URLCONF", "tests.management.shell.urls")
DATABASES = (
    {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SHELL_DATABASE"]}}
    if "SHELL_DATABASE" in os.environ
    else {}
)
# The tests are about what a call prints, not about its row in the log.
MCP_DJANGO = {"LOG_CALLS": "SHELL_LOG_CALLS" in os.environ}
if "SHELL_LOGGING" in os.environ:
    LOGGING = {
        "version": 1,
        "handlers": {
            "file": {"class": "logging.FileHandler", "filename": os.environ["SHELL_LOGGING"]}
        },
        "root": {"handlers": ["file"]},
    }
