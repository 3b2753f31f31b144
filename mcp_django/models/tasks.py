"""Calls that run as tasks, and the leases and attachments of the admin's "Try it" page.

The times of a task are those of the database's clock, because the clocks and time zones of
workers differ. Task ids are 256 random bits: the tasks of an anonymous caller are protected only
by their ids.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgspec
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from mcp_django.models.calls import new_code
from mcp_django.models.fields import ExactCharField, UserForeignKey, tenant_column
from mcp_django.protocol.jsonrpc import encode


def new_task_id() -> str:
    """Return 256 random bits, URL-safe."""
    return secrets.token_urlsafe(32)


class JSONText(models.TextField):  # type: ignore[type-arg]  # generic in the stubs only
    """A JSON value that is stored as text and not queried.

    Values of clients and functions may contain the character NUL, escaped in JSON, which
    PostgreSQL accepts in a text column but not in a JSON column.
    """

    if TYPE_CHECKING:
        _pyi_private_set_type: Any
        _pyi_private_get_type: Any

    def from_db_value(self, value: str | None, *args: Any) -> Any:
        """Return the decoded JSON value."""
        return None if value is None else msgspec.json.decode(value)

    def to_python(self, value: Any) -> Any:
        """Return the value unchanged."""
        return value

    def get_prep_value(self, value: Any) -> str | None:
        """Return the value as JSON text."""
        return None if value is None else encode(value).decode()

    def value_to_string(self, obj: models.Model) -> str:
        """Return the value as JSON text, for fixtures."""
        return self.get_prep_value(self.value_from_object(obj)) or ""


class Task(models.Model):
    """A tool call that runs as a task; kept until ``expires_at``.

    ``status`` is that of MCP 2026-07-28: a task whose result has ``isError`` is ``completed``.
    """

    class Status(models.TextChoices):
        WORKING = "working", _("working")
        INPUT_REQUIRED = "input_required", _("input required")
        COMPLETED = "completed", _("completed")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    task_id = ExactCharField(
        _("id"), max_length=64, primary_key=True, default=new_task_id, editable=False
    )
    tenant = tenant_column()
    server = ExactCharField(_("server"), max_length=100)
    tool = ExactCharField(_("tool"), max_length=128)
    arguments = models.TextField(_("arguments"), default="{}")

    # The caller, for the worker.
    principal = ExactCharField(_("principal"), max_length=255)
    user: Any = UserForeignKey(null=True, blank=True)
    # A digest of the network, by which limits count anonymous callers.
    network = ExactCharField(_("network"), max_length=32, blank=True, editable=False)
    client_id = ExactCharField(_("client ID"), max_length=255, blank=True)
    backend = ExactCharField(_("backend"), max_length=255, blank=True)
    scopes = JSONText(_("scopes"), null=True)
    caller = JSONText(_("caller"), default=dict)

    # What the client declared, and the metadata of this call.
    protocol_version = models.CharField(_("revision"), max_length=32)
    capabilities = JSONText(_("client capabilities"), default=dict)
    client_info = JSONText(_("client"), default=dict)
    trace = JSONText(_("trace context"), default=dict)
    # The primary key of a session, if any; the task outlives it.
    session = models.BigIntegerField(_("session"), null=True)

    status = models.CharField(
        _("status"), max_length=16, choices=Status, default=Status.WORKING, db_index=True
    )
    status_message = models.TextField(_("status message"), blank=True)
    created_at = models.DateTimeField(_("created"), db_default=Now(), editable=False)
    updated_at = models.DateTimeField(_("last changed"), db_default=Now(), editable=False)
    expires_at = models.DateTimeField(_("expires"), db_index=True)
    ttl_ms = models.BigIntegerField(_("time to live in milliseconds"))
    poll_ms = models.BigIntegerField(_("poll interval in milliseconds"))

    # A fencing token: a worker with an earlier run may no longer write to the task.
    run = models.PositiveIntegerField(_("run"), default=1)
    lease_until = models.DateTimeField(_("lease until"), null=True)
    # Incremented by each change of the status, the questions or the answers.
    step = models.PositiveIntegerField(_("step"), default=0)
    engine = models.CharField(_("task backend"), max_length=100, blank=True)

    # The state of the interaction, and its current questions by key.
    state = models.TextField(_("state"), blank=True)
    questions = JSONText(_("questions"), default=dict)
    answers = JSONText(_("answers"), default=dict)
    # All keys that were used for questions, with their keys within the function.
    keys = JSONText(_("question keys"), default=dict)

    result = JSONText(_("result"), null=True)
    error = JSONText(_("error"), null=True)

    class Meta:
        default_permissions = ("view", "delete")
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        ordering = ["-created_at", "-task_id"]
        indexes = [
            models.Index(fields=["server", "principal", "created_at"], name="mcp_task_principal"),
            models.Index(fields=["status", "lease_until"], name="mcp_task_lease"),
        ]
        permissions = [("read_task_result", _("Can read task results of other users"))]

    def __str__(self) -> str:
        return f"{self.tool}: {self.get_status_display()}"

    @property
    def short_id(self) -> str:
        """The beginning of the id, for logs; the whole id gives access to an anonymous task."""
        return f"{self.pk[:8]}…"

    @property
    def is_terminal(self) -> bool:
        """Whether the task has ended."""
        return self.status in ("completed", "failed", "cancelled")


class Lease(models.Model):
    """A lease: an exclusive right until a point in time, for cleanup or one-time confirmations."""

    name = ExactCharField(max_length=100, primary_key=True)
    until = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = _("lease")
        verbose_name_plural = _("leases")
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class Attachment(models.Model):
    """An image, a sound or a long text of a result on the "Try it" page, kept for minutes.

    A strict content security policy blocks ``data:`` URLs, so an image needs a URL that every
    process of the site can serve; it is valid for one user in one session.
    """

    code = ExactCharField(max_length=32, unique=True, default=new_code, editable=False)
    tenant = tenant_column()
    owner = ExactCharField(max_length=64)
    media_type = models.CharField(max_length=100)
    name = models.CharField(max_length=200)
    content = models.BinaryField()
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = _("result attachment")
        verbose_name_plural = _("result attachments")
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
