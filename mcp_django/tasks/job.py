"""The task function that workers of the site's task backend import and run.

Only ``tasks.worker`` and those workers import this module, since it needs Django 6 or
``django-tasks``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import VERSION

if TYPE_CHECKING or VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

from mcp_django.conf import get_settings
from mcp_django.tasks import runs


# Without ``backend`` the name "default" is used, which may not be configured.
@task(backend=get_settings().task_backend or "default")
def run(pk: str, number: int) -> None:
    """Run an MCP task, unless the run was already started or the task cancelled or closed."""
    task_run = runs.take_lease(pk, number)
    if task_run is not None:
        task_run.perform()
