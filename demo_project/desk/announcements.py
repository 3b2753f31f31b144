"""Notify clients of changes to the notices of an airport to which they subscribed.

The handlers are connected to the model and not to the tools, so that changes in the admin notify
clients too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete, post_save

from demo_project.desk.models import Notice
from demo_project.servers import staff
from mcp_django import mcp


def notices_uri(code: str) -> str:
    """Return the URI of the current notices of an airport."""
    return f"notices://{code}"


def connect_signals() -> None:
    """Connect the signals of every change of a notice."""
    for signal in (post_save, post_delete):
        signal.connect(_notice_changed, sender=Notice)


def _notice_changed(*, instance: Notice, **kwargs: Any) -> None:
    transaction.on_commit(partial(_notify_subscribers, instance.airport.known_as))


def _notify_subscribers(codes: list[str]) -> None:
    for code in codes:
        for server in (mcp, staff):
            server.notify_resource_updated(notices_uri(code))
