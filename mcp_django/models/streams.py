"""Streams with event ids, the processes that write them, and what changed when."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from mcp_django.models.sessions import Session


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
