"""What the site owner set in the admin: overrides, exposed models and views, prompts and skills.

Rows name servers, groups, permissions and scopes by their names. After a group is renamed, a row
that names it admits no users; a foreign key whose row was lost would drop the restriction and
admit all. Also, no foreign key crosses a database.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import parse_rates
from mcp_django.models.fields import (
    DigestField,
    ExactCharField,
    UniqueByTenant,
    UserForeignKey,
    set_null,
    tenant_column,
)


class OverrideFields(models.Model):
    """The overrides that servers and components have in common; empty: as in code."""

    is_enabled = models.BooleanField(_("enabled"), default=True)
    title = models.CharField(_("title"), max_length=200, blank=True)
    groups = models.JSONField(_("groups"), default=list, blank=True)
    permissions = models.JSONField(_("permissions"), default=list, blank=True)
    rate = models.CharField(_("rate"), max_length=200, blank=True)

    class Meta:
        abstract = True

    @property
    def rates(self) -> tuple[Any, ...]:
        """The rate limits."""
        return parse_rates(self.rate)


class Server(OverrideFields):
    """One ``MCPServer`` of the code, and its overrides."""

    tenant = tenant_column()
    name = ExactCharField(_("name"), max_length=100)
    instructions = models.TextField(_("instructions"), blank=True)

    class Meta:
        default_permissions = ("view", "change")
        verbose_name = _("server")
        verbose_name_plural = _("servers")
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="mcp_server_once")]
        permissions = [
            ("try_components", _("Can try components as oneself")),
            ("try_as_another", _("Can try components as another user")),
            ("view_as_another", _("Can see what another user's client sees")),
        ]

    def __str__(self) -> str:
        return self.name


class Component(OverrideFields):
    """One tool, resource, resource template or prompt of a server, and its overrides.

    Some attributes of the declaration are stored too, for the list, and for components that are no
    longer in the code.
    """

    class Kind(models.TextChoices):
        TOOL = "tool", _("tool")
        RESOURCE = "resource", _("resource")
        TEMPLATE = "resource template", _("resource template")
        PROMPT = "prompt", _("prompt")

    class Approval(models.TextChoices):
        AS_IN_CODE = "", _("As in code")
        CALLER = "caller", _("The caller approves each call")
        STAFF = "staff", _("Staff approve each call")

    digest = DigestField(of=("tenant", "server", "kind", "key"))
    tenant = tenant_column()
    server = ExactCharField(_("server"), max_length=100)
    kind = models.CharField(_("kind"), max_length=20, choices=Kind)
    key = ExactCharField(_("key"), max_length=500)
    description = models.TextField(_("description"), blank=True)
    scopes = models.JSONField(_("scopes"), default=list, blank=True)
    approval = models.CharField(_("approval"), max_length=10, choices=Approval, blank=True)

    name = models.CharField(_("name"), max_length=500, editable=False)
    app = models.CharField(_("app"), max_length=100, editable=False)
    origin = models.CharField(_("origin"), max_length=500, editable=False)
    is_read_only = models.BooleanField(_("read-only"), null=True, editable=False)
    is_destructive = models.BooleanField(_("destructive"), null=True, editable=False)
    guarded_by = models.CharField(_("permission in code"), max_length=500, editable=False)
    added_at = models.DateTimeField(_("added"), auto_now_add=True)
    missing_since = models.DateTimeField(_("missing since"), null=True, editable=False)

    class Meta:
        default_permissions = ("view", "change", "delete")
        verbose_name = _("component")
        verbose_name_plural = _("components")
        ordering = ["server", "kind", "key"]
        indexes = [models.Index(fields=["server", "kind", "key"], name="mcp_component_key")]

    def __str__(self) -> str:
        # The kind may be invalid if the row was not saved by the admin.
        return f"{dict(self.Kind.choices).get(self.kind, self.kind)} {self.key}"


class Exposure(models.Model):
    """A model or view that is exposed in the admin."""

    class Kind(models.TextChoices):
        MODEL = "model", _("model")
        VIEW = "view", _("view")

    kind = models.CharField(_("kind"), max_length=5, choices=Kind, editable=False)
    tenant = tenant_column()
    server = ExactCharField(_("server"), max_length=100)
    target = ExactCharField(_("target"), max_length=300)
    name = ExactCharField(_("name"), max_length=100, blank=True)
    is_enabled = models.BooleanField(_("enabled"), default=True)
    options = models.JSONField(_("options"), default=dict, blank=True)
    groups = models.JSONField(_("groups"), default=list, blank=True)
    permissions = models.JSONField(_("permissions"), default=list, blank=True)
    scopes = models.JSONField(_("scopes"), default=list, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    changed_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        default_permissions = ()
        verbose_name = _("exposure")
        verbose_name_plural = _("exposures")
        ordering = ["server", "kind", "target", "name"]

    def __str__(self) -> str:
        return f"{self.target} ({self.server})"


class ModelExposure(Exposure):
    """A model that is exposed as tools and resources."""

    class Meta:
        proxy = True
        verbose_name = _("exposed model")
        verbose_name_plural = _("exposed models")

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Set the kind, then save."""
        self.kind = Exposure.Kind.MODEL
        super().save(*args, **kwargs)


class ViewExposure(Exposure):
    """A view that is exposed as a tool, a resource or a prompt."""

    class Meta:
        proxy = True
        verbose_name = _("exposed view")
        verbose_name_plural = _("exposed views")

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Set the kind, then save."""
        self.kind = Exposure.Kind.VIEW
        super().save(*args, **kwargs)


class AdminText(UniqueByTenant):
    """The fields that prompts and skills written in the admin have in common."""

    tenant = tenant_column()
    server = ExactCharField(_("server"), max_length=100)
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
        return str(self.name)  # type: ignore[attr-defined]  # the maximum length differs per kind


class AdminTextVersion(models.Model):
    """One version of a prompt or skill, and its author."""

    number = models.PositiveIntegerField(_("version"))
    content = models.JSONField(_("content"))
    tenant = tenant_column()
    author: Any = UserForeignKey(set_null, null=True, verbose_name=_("author"))
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["-number"]


class PromptText(AdminText):
    """A prompt that is written in the admin; it equals its newest version."""

    name = ExactCharField(_("name"), max_length=128)
    title = models.CharField(_("title"), max_length=200, blank=True)
    description = models.TextField(_("description"), blank=True)
    # Dictionaries with the keys name, description, required and choices.
    arguments = models.JSONField(_("arguments"), default=list, blank=True)
    text = models.TextField(_("text"))

    class Meta(AdminText.Meta):
        verbose_name = _("prompt")
        verbose_name_plural = _("prompts")
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "server", "name"], name="mcp_prompt_text_once"
            )
        ]


class PromptVersion(AdminTextVersion):
    """One version of a prompt."""

    prompt = models.ForeignKey(PromptText, models.CASCADE, related_name="versions")

    class Meta(AdminTextVersion.Meta):
        default_permissions = ()
        verbose_name = _("prompt version")
        verbose_name_plural = _("prompt versions")
        constraints = [
            models.UniqueConstraint(fields=["prompt", "number"], name="mcp_prompt_version_once")
        ]

    def __str__(self) -> str:
        return f"{self.prompt} {self.number}"


class Skill(AdminText):
    """A skill that is written in the admin; it equals its newest version.

    ``text`` is the body of the ``SKILL.md``; its front matter is generated from the other columns.
    ``supporting_files`` contains the other files, each below a line with its name.
    """

    name = ExactCharField(_("name"), max_length=64)
    description = models.TextField(_("description"))
    license = models.CharField(_("license"), max_length=200, blank=True)
    compatibility = models.CharField(_("compatibility"), max_length=500, blank=True)
    text = models.TextField(_("instructions"))
    supporting_files = models.TextField(_("files"), blank=True)

    class Meta(AdminText.Meta):
        verbose_name = _("skill")
        verbose_name_plural = _("skills")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "server", "name"], name="mcp_skill_once")
        ]


class SkillVersion(AdminTextVersion):
    """One version of a skill."""

    skill = models.ForeignKey(Skill, models.CASCADE, related_name="versions")

    class Meta(AdminTextVersion.Meta):
        default_permissions = ()
        verbose_name = _("skill version")
        verbose_name_plural = _("skill versions")
        constraints = [
            models.UniqueConstraint(fields=["skill", "number"], name="mcp_skill_version_once")
        ]

    def __str__(self) -> str:
        return f"{self.skill} {self.number}"
