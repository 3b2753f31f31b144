"""Skills that were written in the admin, and what they said before."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from mcp_django.models.texts import Written, WrittenVersion


class Skill(Written):
    """A skill that was written in the admin; what it says is its newest version.

    ``text`` is what follows the frontmatter, which is made of the other columns.
    ``supporting_files`` holds the files beside it, each under a line with its name.
    """

    name = models.CharField(_("name"), max_length=64)
    description = models.TextField(_("description"))
    license = models.CharField(_("license"), max_length=200, blank=True)
    compatibility = models.CharField(_("compatibility"), max_length=500, blank=True)
    text = models.TextField(_("instructions"))
    supporting_files = models.TextField(_("files"), blank=True)

    class Meta(Written.Meta):
        verbose_name = _("skill")
        verbose_name_plural = _("skills")
        constraints = [models.UniqueConstraint(fields=["server", "name"], name="mcp_skill_once")]


class SkillVersion(WrittenVersion):
    """What a skill said from some moment on, and who had it say so."""

    skill = models.ForeignKey(Skill, models.CASCADE, related_name="versions")

    class Meta(WrittenVersion.Meta):
        verbose_name = _("version of a skill")
        verbose_name_plural = _("versions of skills")
        constraints = [
            models.UniqueConstraint(fields=["skill", "number"], name="mcp_skill_version_once")
        ]

    def __str__(self) -> str:
        return f"{self.skill} {self.number}"
