"""The form of a prompt: what is wrong with a text is said beside it, and nobody's work is lost."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from mcp_django.admin.narrowing_fields import GroupsField, PermissionsField
from mcp_django.admin.prompts_arguments import ArgumentsField
from mcp_django.admin.prompts_preview import previewed
from mcp_django.admin.texts_form import TextForm
from mcp_django.admin.texts_kinds import Kind
from mcp_django.models import PromptText
from mcp_django.overrides import prompt_versions
from mcp_django.overrides.prompt_language import PromptError, read
from mcp_django.overrides.texts import PROMPT_COLUMNS, PROMPT_NAME, arguments_of
from mcp_django.server import all_servers


def is_taken(server: str, name: str) -> bool:
    """Whether code has a prompt that answers to this name, which would be offered instead."""
    return any(one.name == server and one.answering("prompt", name) for one in all_servers())


PROMPTS = Kind(
    noun="prompt",
    offered_among="prompts",
    versions=prompt_versions,
    error=PromptError,
    is_taken=is_taken,
    previewed=previewed,
    not_offered=_("The prompt cannot be offered like this: %(why)s"),
    code_has_it=_("Code has a prompt of this name, which is offered instead."),
    name_is_taken=_("Code has a prompt “%(name)s” on the server %(server)s; take another name."),
    changed_meanwhile=_(
        "Somebody else has changed this prompt meanwhile: it is at version %(newest)d now, and "
        "nothing of yours was saved. Compare with “Versions”, and take over what you need. If "
        "you save again, yours becomes the next version; theirs stays among the versions."
    ),
    look_again=_("Somebody else has changed this prompt meanwhile. Look at it, and try again."),
    versions_title=_("Versions of %(prompt)s"),
    version_title=_("Version %(number)d of %(prompt)s"),
    back=_("Back to the prompt %(prompt)s"),
    were_changed=ngettext_lazy("%(n)d prompt was changed.", "%(n)d prompts were changed.", "n"),
)


class PromptForm(TextForm):
    """A prompt that is written here."""

    kind = PROMPTS

    arguments = ArgumentsField()
    text = forms.CharField(
        label=_("Text"),
        strip=False,
        widget=forms.Textarea(
            attrs={"rows": 18, "class": "vLargeTextField mcp-text", "dir": "auto"}
        ),
        help_text=_(
            'Write {{ name }} where an argument goes. There are {{ name|default:"…" }}, the '
            "filters capfirst, lower, quote, trim and upper, and {% if name %} … {% elif name == "
            '"…" %} … {% else %} … {% endif %}. A line “--- assistant” or “--- user” begins the '
            "next message."
        ),
    )
    groups = GroupsField(
        label=_("Groups"), help_text=_("Whoever is in none of them does not see the prompt.")
    )
    permissions = PermissionsField(
        label=_("Permissions"), help_text=_("Whoever lacks one of them does not see the prompt.")
    )

    class Meta:
        model = PromptText
        # A preview names what is wrong in this order.
        fields = ["server", "is_enabled", *PROMPT_COLUMNS]
        widgets = {
            "description": forms.Textarea(
                attrs={"rows": 3, "class": "vLargeTextField", "dir": "auto"}
            ),
        }

    def clean_name(self) -> str:
        """The name, which clients send as it is.

        Raises:
            ValidationError: it is none.
        """
        name = str(self.cleaned_data["name"])
        if not PROMPT_NAME.fullmatch(name):
            raise ValidationError(_now("Use up to 128 of A-Z a-z 0-9 _ . -"))
        return name

    def clean_together(self, cleaned: dict[str, Any]) -> None:
        """See that the text can be read with these arguments."""
        if "text" not in cleaned or "arguments" not in cleaned:
            return
        try:
            read(cleaned["text"], [one.name for one in arguments_of(cleaned["arguments"])])
        except PromptError as exc:
            self.add_error("text", str(exc))
