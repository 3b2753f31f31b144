"""A model whose changes each package records, with the users that two functions return."""

from __future__ import annotations

from typing import Any

import reversion
from auditlog.registry import auditlog
from crum import get_current_user
from django.apps import apps
from django.conf import settings
from django.db import models
from simple_history.models import HistoricalRecords

from tests.sites.audit.middleware import late_user


def _tracked(model: type[models.Model]) -> type[models.Model]:
    if not apps.is_installed("pghistory"):
        return model
    import pghistory

    return pghistory.track(model_name="NoteEvent")(model)


def _author(user: Any) -> Any:
    return user if user is not None and user.pk else None


class Authored(models.Model):
    """Has the user that two functions return while a row is saved."""

    crum_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, editable=False, related_name="+"
    )
    late_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, editable=False, related_name="+"
    )

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.crum_user, self.late_user = _author(get_current_user()), late_user()
        if kwargs.get("update_fields") is not None:
            kwargs["update_fields"] = {*kwargs["update_fields"], "crum_user", "late_user"}
        super().save(*args, **kwargs)


@_tracked
@reversion.register
class Note(Authored):
    text = models.CharField(max_length=100)
    history = HistoricalRecords()

    def __str__(self) -> str:
        return self.text


auditlog.register(Note)
