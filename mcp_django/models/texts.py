"""What prompts and skills that are written in the admin have in common, with their versions."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class Written(models.Model):
    """What is written for a server; what it says is its newest version."""

    server = models.CharField(_("server"), max_length=100)
    is_enabled = models.BooleanField(_("enabled"), default=True)
    groups = models.JSONField(_("groups"), default=list, blank=True)
    permissions = models.JSONField(_("permissions"), default=list, blank=True)
    scopes = models.JSONField(_("scopes"), default=list, blank=True)
    version = models.PositiveIntegerField(_("version"), default=0, editable=False)
    changed_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        abstract = True
        ordering = ["server", "name"]

    def __str__(self) -> str:
        return str(self.name)  # type: ignore[attr-defined]  # as long as each kind allows


class WrittenVersion(models.Model):
    """What it said from some moment on, and who had it say so."""

    number = models.PositiveIntegerField(_("version"))
    content = models.JSONField(_("content"))
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        related_name="+",
        verbose_name=_("author"),
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["-number"]
