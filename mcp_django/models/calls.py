"""The call log, and the approvals of calls."""

from __future__ import annotations

import secrets

from django.db import models
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.models.fields import ExactCharField, tenant_column

# Needed by PostgreSQL for prefix searches in any collation; other databases ignore it.
PREFIX_OPCLASSES = ["varchar_pattern_ops", "int8_ops"]


def new_code() -> str:
    """Return 128 random bits, URL-safe."""
    return secrets.token_urlsafe(16)


class Call(models.Model):
    """A call record: one use of a component, or an attempt; append-only.

    It has no foreign keys: a record outlives the user, the session and the component that it names.
    """

    class Outcome(models.TextChoices):
        STARTED = "started", _("started")
        OK = "ok", _("ok")
        ASKED = "asked", _("waiting for the user")
        ERROR = "error", _("tool error")
        INVALID = "invalid", _("invalid arguments")
        FAILED = "failed", _("internal error")
        TIMEOUT = "timeout", _("timed out")
        CANCELLED = "cancelled", _("cancelled")
        UNKNOWN = "unknown", _("not found or hidden")
        REFUSED = "refused", _("refused")
        LIMITED = "limited", _("rate limited")
        DENIED = "denied", _("not approved")

    class Origin(models.TextChoices):
        CLIENT = "client", _("client")
        ADMIN = "admin", _("admin")
        COMMAND = "command", _("command")

    # Made by the process, which finds the row again by it and its time.
    token = ExactCharField(max_length=40, default=new_code, editable=False)
    at = models.DateTimeField(_("time"))
    tenant = tenant_column()
    server = ExactCharField(_("server"), max_length=100)
    kind = models.CharField(_("kind"), max_length=20)
    component = ExactCharField(_("component"), max_length=500)
    uri = models.CharField(_("URI"), max_length=2000, blank=True)
    origin = models.CharField(_("origin"), max_length=10, choices=Origin, default=Origin.CLIENT)
    user_key = ExactCharField(_("user key"), max_length=128, db_index=True)
    user_name = models.CharField(_("user"), max_length=255, blank=True)
    acting_user = models.CharField(_("acting user"), max_length=255, blank=True)
    client_id = ExactCharField(_("client ID"), max_length=255, blank=True)
    client = models.CharField(_("client"), max_length=255, blank=True)
    revision = models.CharField(_("revision"), max_length=32, blank=True)
    transport = models.CharField(_("transport"), max_length=20, blank=True)
    session = ExactCharField(_("session"), max_length=64, blank=True)
    trace_id = models.CharField(_("trace ID"), max_length=32, blank=True)
    writes = models.BooleanField(_("may write"), default=False)
    outcome = models.CharField(_("outcome"), max_length=10, choices=Outcome)
    code = models.IntegerField(_("error code"), null=True)
    reason = models.CharField(_("reason"), max_length=255, blank=True)
    ms = models.FloatField(_("milliseconds"), null=True)
    rows = models.PositiveIntegerField(_("rows"), null=True)
    bytes = models.PositiveIntegerField(_("result size in bytes"), null=True)
    argument_names = models.JSONField(_("arguments"), default=list)
    arguments_digest = models.CharField(_("digest of the arguments"), max_length=64, blank=True)
    arguments = models.JSONField(_("values of the arguments"), null=True)
    # Paths of the invalid arguments, for the statistics of tool quality.
    problems = models.JSONField(_("invalid arguments"), default=list)

    class Meta:
        default_permissions = ("view",)
        verbose_name = _("call")
        verbose_name_plural = _("calls")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["at", "server"], name="mcp_call_at"),
            # Covers the call counts in the list of components (index-only scans).
            models.Index(
                fields=["server", "component", "at", "kind", "outcome"], name="mcp_call_component"
            ),
            models.Index(fields=["outcome", "at"], name="mcp_call_outcome"),
            # For searches in the list of calls, in the order in which it is sorted.
            models.Index(
                fields=["component", "id"], name="mcp_call_name", opclasses=PREFIX_OPCLASSES
            ),
            models.Index(
                fields=["user_name", "id"], name="mcp_call_user", opclasses=PREFIX_OPCLASSES
            ),
            models.Index(
                fields=["client", "id"], name="mcp_call_client", opclasses=PREFIX_OPCLASSES
            ),
            models.Index(fields=["client_id", "id"], name="mcp_call_client_id"),
            models.Index(fields=["trace_id", "id"], name="mcp_call_trace"),
        ]
        permissions = [("export_call", _("Can export calls"))]

    def __str__(self) -> str:
        return f"{self.component}: {self.get_outcome_display()}"


class Approval(models.Model):
    """A call that waits, or waited, for an approval, which is valid for that call, once."""

    class State(models.TextChoices):
        PENDING = "pending", _("waiting")
        GRANTED = "granted", _("approved")
        REFUSED = "refused", _("rejected")
        USED = "used", _("approved and used")

    class By(models.TextChoices):
        CALLER = "caller", _("the caller")
        STAFF = "staff", _("staff")

    code = ExactCharField(_("code"), max_length=32, unique=True, default=new_code, editable=False)
    tenant = tenant_column()
    server = ExactCharField(_("server"), max_length=100)
    component = ExactCharField(_("tool"), max_length=128)
    by = models.CharField(_("approver"), max_length=10, choices=By)
    principal = ExactCharField(_("principal"), max_length=255)
    user_key = ExactCharField(_("user key"), max_length=128, db_index=True)
    user_name = models.CharField(_("user"), max_length=255)
    client = models.CharField(_("client"), max_length=255, blank=True)
    arguments_digest = models.CharField(_("digest of the arguments"), max_length=64)
    arguments = models.JSONField(_("arguments"), default=dict)
    preview = models.JSONField(_("preview"), null=True)
    state = models.CharField(_("state"), max_length=10, choices=State, default=State.PENDING)
    created_at = models.DateTimeField(_("requested"), auto_now_add=True)
    expires_at = models.DateTimeField(_("expires"), db_index=True)
    decided_at = models.DateTimeField(_("decided"), null=True)
    decided_by = models.CharField(_("decided by"), max_length=255, blank=True)
    reason = models.CharField(_("reason"), max_length=500, blank=True)

    class Meta:
        default_permissions = ("view",)
        verbose_name = _("approval")
        verbose_name_plural = _("approvals")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["principal", "arguments_digest"], name="mcp_approval_asked")
        ]
        permissions = [("decide_approval", _("Can approve calls of other users"))]

    def __str__(self) -> str:
        names = {"component": self.component, "user": self.user_name}
        return gettext("%(component)s for %(user)s") % names
