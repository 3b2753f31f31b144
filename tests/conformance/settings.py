"""The suite's own site: the settings of all tests, with the fixture in place of the example.

It has the SQLite file of `MCP_TEST_DATABASE` and no channel layer, and runs tasks itself; with
`MCP_TEST_SHARED` it has PostgreSQL and Redis, as several workers need them, and hands tasks to
workers of their own.
"""

import os

from mcp_django.tasks.worker import task_framework
from tests.conformance import shared
from tests.settings import *  # noqa: F403

INSTALLED_APPS = [
    "tests.conformance" if app == "tests.sites.example" else app
    for app in INSTALLED_APPS  # noqa: F405
]
# Names of this machine; any other name that a page has rebound to it is refused.
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
ROOT_URLCONF = "tests.conformance.urls"
ASGI_APPLICATION = "tests.conformance.asgi.application"
CHANNEL_LAYERS = {}
# The suite opens its sessions from one address, without credentials. It waits 1.5 seconds for the
# notification of a changed list, which leaves 1.2 times CONFIRM_SECONDS after it.
MCP_DJANGO = {"SESSION_RATE": "", "CONFIRM_SECONDS": 0.5}

# Check W005 requires this of a site whose tools write.
DATABASES["default"]["OPTIONS"]["transaction_mode"] = "IMMEDIATE"  # noqa: F405
if os.environ.get("MCP_TEST_SHARED"):
    DATABASES = {"default": shared.database(os.environ["MCP_TEST_DATABASE_URL"])}
    CHANNEL_LAYERS = {
        "default": shared.channel_layer(
            os.environ["MCP_TEST_REDIS_URL"], prefix=DATABASES["default"]["NAME"]
        )
    }
    # From version 6.0 on, Django itself has the interface of task backends.
    INSTALLED_APPS += [
        app for app in (task_framework(), "django_tasks_db") if app != "django.tasks"
    ]
    TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": []}}
    MCP_DJANGO["TASK_BACKEND"] = "default"
