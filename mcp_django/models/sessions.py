"""Sessions of the handshake revisions, their streams, and what reaches them from other processes.

A session has subscriptions and an inbox for messages from other processes. Its streams have event
ids, so that a client can resume them; one process writes a stream and any process reads it.
Topics record what changed and when.

Times of a session and its inbox are those of the database's clock, because the clocks and time
zones of workers differ.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Session(models.Model):
    """What a client and a server agreed on in ``initialize`` (2024-11-05 to 2025-11-25).

    The id itself is not kept: whoever reads the table cannot take a session over.
    """

    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    server = models.CharField(_("server"), max_length=100)
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
    protocol_version = models.CharField(_("revision"), max_length=32)
    client_info = models.JSONField(_("client"), default=dict)
    capabilities = models.JSONField(_("capabilities of the client"), default=dict)
    log_level = models.CharField(_("log level"), max_length=16, blank=True)
    is_initialized = models.BooleanField(_("initialized"), default=False)
    created_at = models.DateTimeField(_("created"), db_default=Now(), editable=False)
    seen_at = models.DateTimeField(_("last seen"))
    expires_at = models.DateTimeField(_("expires"), db_index=True)
    # The number of the last change that the client is taken to know of, see ``Topic.seq``.
    heard_seq = models.BigIntegerField(_("told of changes until"), default=0, editable=False)

    class Meta:
        verbose_name = _("session")
        verbose_name_plural = _("sessions")
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["principal", "network", "seen_at"], name="mcp_session_principal")
        ]

    def __str__(self) -> str:
        name = self.client_info.get("name", "?")
        return f"{name} ({self.protocol_version}) of {self.principal}"


class Subscription(models.Model):
    """A resource whose changes a session wants to hear of."""

    session = models.ForeignKey(Session, models.CASCADE, related_name="subscriptions")
    uri = models.TextField(_("URI"))
    digest = models.CharField(max_length=64)

    class Meta:
        verbose_name = _("subscription")
        verbose_name_plural = _("subscriptions")
        constraints = [
            models.UniqueConstraint(fields=["session", "digest"], name="mcp_subscription_once")
        ]

    def __str__(self) -> str:
        return self.uri


class Inbox(models.Model):
    """Something for the process that serves a session, put down by another one."""

    class Kind(models.TextChoices):
        ANSWER = "answer", _("answer to a question")
        CANCEL = "cancel", _("cancellation")
        MESSAGE = "message", _("message of the client")

    session = models.ForeignKey(Session, models.CASCADE, related_name="+")
    kind = models.CharField(max_length=8, choices=Kind)
    ref = models.CharField(max_length=255)
    payload = models.TextField(default="")
    created_at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        verbose_name = _("inbox entry")
        verbose_name_plural = _("inbox")
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.kind} {self.ref}"


# Streams, events, workers and topics --------------------------------------------------------------


class Worker(models.Model):
    """A process that owns streams; one that stops beating has lost them."""

    id = models.BigIntegerField(primary_key=True)
    beat_at = models.DateTimeField(_("last beat"), db_index=True)

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return f"{self.pk:x}"


class Stream(models.Model):
    """A series of events that a client may resume: written by one process, read by any."""

    class Kind(models.TextChoices):
        POST = "post", _("answer to a request")
        GET = "get", _("standing stream")

    class State(models.TextChoices):
        OPEN = "open", _("open")
        DONE = "done", _("complete")
        LOST = "lost", _("lost with its process")

    id = models.BigIntegerField(primary_key=True)
    session = models.ForeignKey(Session, models.CASCADE, related_name="streams")
    kind = models.CharField(max_length=4, choices=Kind)
    request_id = models.TextField(default="")
    owner = models.BigIntegerField()
    state = models.CharField(max_length=4, choices=State, default=State.OPEN)
    # Of a standing stream: which one of its session's it is.
    last_seq = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
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
        verbose_name = _("event")
        verbose_name_plural = _("events")

    def __str__(self) -> str:
        return f"{self.pk}"


class Topic(models.Model):
    """Something that changes: how often it did, and when the last time was.

    ``seq`` is the number of its last change among those of all topics, 0 for one that takes none.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    version = models.BigIntegerField(default=1)
    seq = models.BigIntegerField(default=0, db_index=True)
    changed_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = _("topic")
        verbose_name_plural = _("topics")

    def __str__(self) -> str:
        return self.digest
