"""Skills that are written here, in the admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.skills_form import SKILLS, SkillForm
from mcp_django.admin.texts import TextAdmin
from mcp_django.models import Skill


@admin.register(Skill)
class SkillAdmin(TextAdmin):
    """The list of written skills and the form of one."""

    kind = SKILLS
    form = SkillForm
    what_it_is = ("description",)
    what_it_says = ("text", "supporting_files")
    more_about_it = ("license", "compatibility")
    list_display = ["name", "server", "is_enabled", "state", "version", "changed_at"]
    search_fields = ["name", "description", "text", "supporting_files"]
    actions = ["enable", "disable"]

    @admin.action(description=_("Enable the selected skills"), permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Skill]) -> None:
        """Offer them."""
        self.switch(request, queryset, is_enabled=True)

    @admin.action(description=_("Disable the selected skills"), permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Skill]) -> None:
        """Offer them no more."""
        self.switch(request, queryset, is_enabled=False)
