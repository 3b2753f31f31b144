"""The form of a skill: what is wrong is said beside its field, and nobody's work is lost."""

from __future__ import annotations

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from mcp_django.admin.narrowing_fields import GroupsField, PermissionsField
from mcp_django.admin.skills_preview import previewed
from mcp_django.admin.texts_form import TextForm
from mcp_django.admin.texts_kinds import Kind
from mcp_django.core.resource import MAX_DESCRIPTION, is_name
from mcp_django.integrations.yaml_scalars import SkillError
from mcp_django.models import Skill
from mcp_django.overrides import skill_versions
from mcp_django.overrides.texts import SKILL_COLUMNS
from mcp_django.overrides.texts import is_taken as is_of_code
from mcp_django.server import all_servers


def is_taken(server: str, name: str) -> bool:
    """Whether code has a skill of this name, which would be offered instead."""
    return any(one.name == server and is_of_code(one.resources, name) for one in all_servers())


SKILLS = Kind(
    noun="skill",
    offered_among="resources",
    versions=skill_versions,
    error=SkillError,
    is_taken=is_taken,
    previewed=previewed,
    not_offered=_("The skill cannot be offered like this: %(why)s"),
    code_has_it=_("Code has a skill of this name, which is offered instead."),
    name_is_taken=_("Code has a skill “%(name)s” on the server %(server)s; take another name."),
    changed_meanwhile=_(
        "Somebody else has changed this skill meanwhile: it is at version %(newest)d now, and "
        "nothing of yours was saved. Compare with “Versions”, and take over what you need. If "
        "you save again, yours becomes the next version; theirs stays among the versions."
    ),
    look_again=_("Somebody else has changed this skill meanwhile. Look at it, and try again."),
    versions_title=_("Versions of %(skill)s"),
    version_title=_("Version %(number)d of %(skill)s"),
    back=_("Back to the skill %(skill)s"),
    were_changed=ngettext_lazy("%(n)d skill was changed.", "%(n)d skills were changed.", "n"),
)


class SkillForm(TextForm):
    """A skill that is written here."""

    kind = SKILLS
    lines = ("description", "text", "supporting_files")

    description = forms.CharField(
        label=_("Description"),
        max_length=MAX_DESCRIPTION,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField", "dir": "auto"}),
        help_text=_(
            "What it does, and when to use it: by this alone a model decides whether to read on."
        ),
    )
    text = forms.CharField(
        label=_("Instructions"),
        strip=False,
        widget=forms.Textarea(
            attrs={"rows": 18, "class": "vLargeTextField mcp-text", "dir": "auto"}
        ),
        help_text=_(
            "In Markdown. Name the tools to use, and the files below, as references/codes.md."
        ),
    )
    supporting_files = forms.CharField(
        label=_("Files"),
        strip=False,
        required=False,
        widget=forms.Textarea(
            attrs={"rows": 8, "class": "vLargeTextField mcp-text", "dir": "auto"}
        ),
        help_text=_(
            "What a model reads only when the instructions send it there. A line “--- file: "
            "references/codes.md” begins a file."
        ),
    )
    groups = GroupsField(
        label=_("Groups"), help_text=_("Whoever is in none of them does not see the skill.")
    )
    permissions = PermissionsField(
        label=_("Permissions"), help_text=_("Whoever lacks one of them does not see the skill.")
    )

    class Meta:
        model = Skill
        # A preview names what is wrong in this order.
        fields = ["server", "is_enabled", *SKILL_COLUMNS]
        help_texts = {
            "license": _("Such as the name of a license."),
            "compatibility": _("What a client needs for it, if anything."),
        }

    def clean_name(self) -> str:
        """The name, which becomes a part of addresses.

        Raises:
            ValidationError: it is none.
        """
        name = str(self.cleaned_data["name"])
        if not is_name(name):
            raise ValidationError(
                _now("Use up to 64 of a-z, 0-9 and single hyphens between them: close-a-notice")
            )
        return name
