"""Settings of web processes and of task workers that share a database; see `tests.kit.fleet`."""

from importlib.util import find_spec

from mcp_django.tasks.worker import task_framework
from tests.transports.http_session.settings import *  # noqa: F403

INSTALLED_APPS = [
    *(app for app in INSTALLED_APPS if app != "tests.transports.http_session.apps.SessionsConfig"),  # noqa: F405
    *([task_framework()] if task_framework() == "django_tasks" else []),
    *(["django_tasks_db"] if find_spec("django_tasks_db") else []),
]
ROOT_URLCONF = "tests.tasks.live.urls"
TASKS = {"database": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
MCP_DJANGO = {"TASK_BACKEND": "database", "LOG_CALLS": False}
