"""Notices: temporary information about airports, for pilots and staff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from django.conf import settings
from django.db import models
from django.utils import timezone

from demo_project.airports.models import Airport

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class NoticeQuerySet(models.QuerySet["Notice"]):
    def current(self) -> Self:
        """Return the notices that are not closed."""
        return self.filter(closed_at=None)


class Notice(models.Model):
    class Severity(models.TextChoices):
        INFORMATION = "information"
        CAUTION = "caution"
        WARNING = "warning"

    airport = models.ForeignKey(Airport, models.PROTECT, related_name="notices")
    title = models.CharField(max_length=120)
    text = models.TextField()
    severity = models.CharField(max_length=11, choices=Severity, default=Severity.INFORMATION)
    published_at = models.DateTimeField(default=timezone.now, editable=False)
    closed_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_by: models.ForeignKey[User | None, User | None] = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
    )

    objects = NoticeQuerySet.as_manager()

    class Meta:
        ordering = ["-published_at", "-pk"]
        indexes = [
            models.Index(
                fields=["airport"], condition=models.Q(closed_at=None), name="notice_current"
            )
        ]

    def __str__(self) -> str:
        return f"{self.airport.icao}: {self.title}"

    @property
    def is_current(self) -> bool:
        return self.closed_at is None

    def close(self) -> None:
        """Close the notice now; a closed notice keeps the time at which it was closed."""
        if self.is_current:
            self.closed_at = timezone.now()
            self.save(update_fields=["closed_at"])
