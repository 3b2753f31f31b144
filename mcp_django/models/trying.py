"""What an answer shown in the admin had beside its text, for as long as somebody looks at it."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from mcp_django.models.calls import new_code


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
