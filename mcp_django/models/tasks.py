"""Calls that run as tasks, with all that a worker needs to run one and a client to read it.

Leases and the attachments of answers that are shown in the admin are here too.

The times of a task are those of the database's clock, because the clocks and time zones of
workers differ. Task ids are 256 random bits: for a caller without a name the id is all that
guards a task.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgspec
from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from mcp_django.models.calls import new_code
from mcp_django.protocol.jsonrpc import encode


def new_task_id() -> str:
    """256 random bits, safe in a URL."""
    return secrets.token_urlsafe(32)


class JSONText(models.TextField):  # type: ignore[type-arg]  # generic in the stubs only
    """A JSON value that is read and written whole, and never searched.

    As text, since what clients send and functions return may hold a NUL, which PostgreSQL takes in
    the text of a document and nowhere in a JSON column.
    """

    if TYPE_CHECKING:
        _pyi_private_set_type: Any
        _pyi_private_get_type: Any

    def from_db_value(self, value: str | None, *args: Any) -> Any:
        """The value, of plain dictionaries, lists, texts and numbers."""
        return None if value is None else msgspec.json.decode(value)

    def to_python(self, value: Any) -> Any:
        """The value as it is."""
        return value

    def get_prep_value(self, value: Any) -> str | None:
        """The text."""
        return None if value is None else encode(value).decode()

    def value_to_string(self, obj: models.Model) -> str:
        """The text, for fixtures."""
        return self.get_prep_value(self.value_from_object(obj)) or ""


class Task(models.Model):
    """One call of a tool that goes on after its request; kept until ``expires_at``.

    ``status`` is that of MCP 2026-07-28: a result with ``isError`` is ``completed`` here.
    """

    class Status(models.TextChoices):
        WORKING = "working", _("working")
        INPUT_REQUIRED = "input_required", _("waits for answers")
        COMPLETED = "completed", _("completed")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    task_id = models.CharField(
        _("id"), max_length=64, primary_key=True, default=new_task_id, editable=False
    )
    server = models.CharField(_("server"), max_length=100)
    tool = models.CharField(_("tool"), max_length=128)
    arguments = models.TextField(_("arguments"), default="{}")

    # Who called, as the worker has to know it.
    principal = models.CharField(_("principal"), max_length=255)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("user"),
    )
    # What limits count a caller without credentials by: a digest of the network.
    network = models.CharField(_("network"), max_length=32, blank=True, editable=False)
    client_id = models.CharField(_("client id"), max_length=255, blank=True)
    backend = models.CharField(_("backend"), max_length=255, blank=True)
    scopes = JSONText(_("scopes"), null=True)
    caller = JSONText(_("caller"), default=dict)

    # What the client said of itself and of this call.
    protocol_version = models.CharField(_("revision"), max_length=32)
    capabilities = JSONText(_("capabilities of the client"), default=dict)
    client_info = JSONText(_("client"), default=dict)
    trace = JSONText(_("trace context"), default=dict)
    # The primary key of a session, where there is one; the task outlives it.
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

    # The fence: whoever was given an earlier run may not write any more.
    run = models.PositiveIntegerField(_("run"), default=1)
    lease_until = models.DateTimeField(_("lease until"), null=True)
    # Counts every change of the status, the questions and the answers.
    step = models.PositiveIntegerField(_("step"), default=0)
    engine = models.CharField(_("backend that runs it"), max_length=100, blank=True)

    # How far its interaction has come, and what it asks now, by key.
    state = models.TextField(_("state"), blank=True)
    questions = JSONText(_("questions"), default=dict)
    answers = JSONText(_("answers"), default=dict)
    # Every key that was ever used for a question, with its key within the function.
    keys = JSONText(_("keys of questions"), default=dict)

    result = JSONText(_("result"), null=True)
    error = JSONText(_("error"), null=True)

    class Meta:
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        ordering = ["-created_at", "-task_id"]
        indexes = [
            models.Index(fields=["server", "principal", "created_at"], name="mcp_task_principal"),
            models.Index(fields=["status", "lease_until"], name="mcp_task_lease"),
        ]
        permissions = [("read_task_result", _("Can read what tasks of others answered"))]

    def __str__(self) -> str:
        return f"{self.tool} {self.status}"

    @property
    def short_id(self) -> str:
        """As much of the id as a log may have: where callers have no name the whole is a key."""
        return f"{self.pk[:8]}…"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing of it changes any more."""
        return self.status in ("completed", "failed", "cancelled")


# Leases and attachments ---------------------------------------------------------------------------


class Lease(models.Model):
    """Something that one has until a moment and nobody else: to sweep, to confirm once."""

    name = models.CharField(max_length=100, primary_key=True)
    until = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = _("lease")
        verbose_name_plural = _("leases")
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class Attachment(models.Model):
    """A picture, a sound or a long text of an answer in "Try it", kept for minutes.

    A page under a strict content security policy shows no ``data:``, so a picture needs an address
    that every process of the site can answer; it is good for one user in one session.
    """

    code = models.CharField(max_length=32, unique=True, default=new_code, editable=False)
    owner = models.CharField(max_length=64)
    media_type = models.CharField(max_length=100)
    name = models.CharField(max_length=200)
    content = models.BinaryField()
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = _("attachment of an answer")
        verbose_name_plural = _("attachments of answers")
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
