"""Sessions of the handshake revisions, their streams, their inbox, and the topics of pub/sub.

A session has subscriptions and an inbox for messages from other processes. Its streams have event
ids, so that a client can resume them; one process writes a stream and any process reads it.
Topics record what changed and when.

Times of a session and its inbox are those of the database's clock, because the clocks and time
zones of workers differ.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.models.fields import ExactCharField, UserForeignKey, tenant_column


class Session(models.Model):
    """A session that a client created with ``initialize`` (2024-11-05 to 2025-11-25).

    Only a digest of the id is stored, so that read access to the table is not enough to take over
    a session.
    """

    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    tenant = tenant_column()
    server = ExactCharField(_("server"), max_length=100)
    principal = ExactCharField(_("principal"), max_length=255)
    user: Any = UserForeignKey(null=True, blank=True)
    # A digest of the network, by which limits count anonymous callers.
    network = ExactCharField(_("network"), max_length=32, blank=True, editable=False)
    protocol_version = models.CharField(_("revision"), max_length=32)
    client_info = models.JSONField(_("client"), default=dict)
    capabilities = models.JSONField(_("client capabilities"), default=dict)
    log_level = models.CharField(_("log level"), max_length=16, blank=True)
    is_initialized = models.BooleanField(_("initialized"), default=False)
    created_at = models.DateTimeField(_("created"), db_default=Now(), editable=False)
    seen_at = models.DateTimeField(_("last seen"))
    expires_at = models.DateTimeField(_("expires"), db_index=True)
    # The number of the last change that the client was notified of, see ``Topic.seq``.
    heard_seq = models.BigIntegerField(_("last notified change"), default=0, editable=False)

    class Meta:
        default_permissions = ("view", "delete")
        verbose_name = _("session")
        verbose_name_plural = _("sessions")
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["principal", "network", "seen_at"], name="mcp_session_principal")
        ]

    def __str__(self) -> str:
        name = self.client_info.get("name", "?")
        caller = self.principal if self.user is None else self.user.get_username()
        names = {"client": f"{name} ({self.protocol_version})", "user": caller}
        return gettext("%(client)s of %(user)s") % names


class Subscription(models.Model):
    """A resource whose changes a session subscribes to."""

    session = models.ForeignKey(Session, models.CASCADE, related_name="subscriptions")
    uri = models.TextField(_("URI"))
    digest = models.CharField(max_length=64)

    class Meta:
        default_permissions = ()
        verbose_name = _("subscription")
        verbose_name_plural = _("subscriptions")
        constraints = [
            models.UniqueConstraint(fields=["session", "digest"], name="mcp_subscription_once")
        ]

    def __str__(self) -> str:
        return self.uri


class Inbox(models.Model):
    """A message to the process that serves a session, written by another process."""

    class Kind(models.TextChoices):
        ANSWER = "answer", _("answer to a question")
        CANCEL = "cancel", _("cancellation")
        MESSAGE = "message", _("message of the client")

    session = models.ForeignKey(Session, models.CASCADE, related_name="+")
    kind = models.CharField(max_length=8, choices=Kind)
    ref = ExactCharField(max_length=255)
    payload = models.TextField(default="")
    created_at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        default_permissions = ()
        verbose_name = _("inbox entry")
        verbose_name_plural = _("inbox")
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.kind} {self.ref}"


class Worker(models.Model):
    """A process that owns streams; if its heartbeat stops, its streams are lost."""

    id = models.BigIntegerField(primary_key=True)
    beat_at = models.DateTimeField(_("last heartbeat"), db_index=True)

    class Meta:
        default_permissions = ()
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return f"{self.pk:x}"


class Stream(models.Model):
    """A series of events that a client may resume: written by one process, read by any."""

    class Kind(models.TextChoices):
        POST = "post", _("response to a request")
        GET = "get", _("GET stream")

    class State(models.TextChoices):
        OPEN = "open", _("open")
        DONE = "done", _("complete")
        LOST = "lost", _("lost (process ended)")

    id = models.BigIntegerField(primary_key=True)
    session = models.ForeignKey(Session, models.CASCADE, related_name="streams")
    kind = models.CharField(max_length=4, choices=Kind)
    request_id = models.TextField(default="")
    owner = models.BigIntegerField()
    state = models.CharField(max_length=4, choices=State, default=State.OPEN)
    # The number of the last event; for a GET stream, the number of the stream within its session.
    last_seq = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        default_permissions = ()
        verbose_name = _("stream")
        verbose_name_plural = _("streams")

    def __str__(self) -> str:
        return f"{self.kind} {self.pk:x}"


class Event(models.Model):
    """One message on a stream."""

    pk = models.CompositePrimaryKey("stream", "seq")
    stream = models.ForeignKey(Stream, models.CASCADE, related_name="events")
    seq = models.BigIntegerField()
    payload = models.TextField()

    class Meta:
        default_permissions = ()
        verbose_name = _("event")
        verbose_name_plural = _("events")

    def __str__(self) -> str:
        return f"{self.pk}"


class Topic(models.Model):
    """The version of a topic: how often it changed, and when it changed last.

    ``seq`` is the number of its last change among the changes of all topics, 0 for topics whose
    changes are not numbered.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    version = models.BigIntegerField(default=1)
    seq = models.BigIntegerField(default=0, db_index=True)
    changed_at = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()
        verbose_name = _("topic")
        verbose_name_plural = _("topics")

    def __str__(self) -> str:
        return self.digest
