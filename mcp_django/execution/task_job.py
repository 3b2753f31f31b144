"""What a worker of the site's task backend imports and calls.

Imported by nothing but ``task_worker`` and those workers, since it needs Django 6 or
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
from mcp_django.execution import task_runs


# A site may have no backend of the name that is taken otherwise.
@task(backend=get_settings().task_backend or "default")
def run(pk: str, number: int) -> None:
    """Run a task of ours, unless somebody has or it is not wanted any more."""
    taken = task_runs.take(pk, number)
    if taken is not None:
        taken.perform()
