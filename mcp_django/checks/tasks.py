"""Checks of what runs the tools that are tasks."""

from __future__ import annotations

from typing import Any

from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured

from mcp_django.conf import get_settings
from mcp_django.core.tool import Tool
from mcp_django.execution.task_worker import backends
from mcp_django.server import all_servers

# Backends of Django and of django-tasks that are for development, by the names of their classes.
QUEUE = "default"
IN_REQUEST, NOWHERE = "ImmediateBackend", "DummyBackend"


def check_task_backend(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E017: what is to run tasks cannot. W019: it survives nothing."""
    running = [
        f"{tool.key} on {server.name}"
        for server in all_servers()
        for tool in server
        if isinstance(tool, Tool) and tool.task
    ]
    alias = get_settings().task_backend
    if alias:
        reason = _hindrance(alias)
        return [] if reason is None else [_error(*reason)]
    if not running or django_settings.DEBUG:
        return []
    return [
        checks.Warning(
            f"Tools run as tasks ({', '.join(sorted(running))}) in threads of the web process, and "
            "end with it.",
            hint=(
                "Set MCP_DJANGO['TASK_BACKEND'] to an alias of TASKS whose workers run on their "
                "own; see docs/tasks.md."
            ),
            id="mcp_django.W019",
        )
    ]


def _hindrance(alias: str) -> tuple[str, str] | None:
    """Why a backend cannot run tasks, and the way out."""
    found = backends()
    if found is None:
        return (
            f"is {alias!r}, and there is no task framework.",
            "Install 'django-mcp-provider[tasks]', or Django 6.",
        )
    try:
        backend = found[alias]
    except (ImproperlyConfigured, ImportError) as exc:
        known = ", ".join(map(repr, getattr(django_settings, "TASKS", {}))) or "no entry"
        reason = str(exc).rstrip(".")
        return (
            f"is {alias!r}, which cannot be used: {reason}.",
            f"TASKS has {known}: name one of TASKS, or add {alias!r} to it.",
        )
    except RuntimeError as exc:
        # What Django says of a model whose app is not installed.
        return f"is {alias!r}, which cannot be used: {exc}", "Add its app to INSTALLED_APPS."
    name = type(backend).__name__
    if name == IN_REQUEST:
        return (
            f"is {alias!r}, an {name}: it runs a task inside the request that creates it.",
            "Leave TASK_BACKEND empty for development; else name a backend with workers.",
        )
    if name == NOWHERE:
        return f"is {alias!r}, a {name}, which runs nothing.", "Name a backend with workers."
    if backend.queues and QUEUE not in backend.queues:
        return f"is {alias!r}, which has no queue {QUEUE!r}.", f"Add {QUEUE!r} to its QUEUES."
    # Before Django 6 nobody else asks, unless the framework is an installed app.
    for one in backend.check():
        if one.is_serious():
            return f"is {alias!r}, which is not ready: {one.msg}.", one.hint or "Mend that."
    return None


def _error(message: str, hint: str) -> CheckMessage:
    message = f"MCP_DJANGO['TASK_BACKEND'] {message}"
    return checks.Error(message, hint=hint, id="mcp_django.E017")
