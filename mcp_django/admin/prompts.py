"""Prompts and skills that are written in the admin: their lists, forms and previews.

Both forms show what is wrong beside the field that it concerns, and detect that the text was
changed by another user in the meantime (``admin.texts``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now, gettext_lazy as _, ngettext, ngettext_lazy

from mcp_django.admin.override_forms import GroupsField, PermissionsField
from mcp_django.admin.texts import Kind, TextAdmin, TextForm
from mcp_django.core.resource import MAX_DESCRIPTION, is_name
from mcp_django.exceptions import InvalidParams
from mcp_django.execution.handlers.prompts import describe
from mcp_django.execution.handlers.resources import entry_of
from mcp_django.integrations.yaml_scalars import SkillError
from mcp_django.models import PromptText, Skill
from mcp_django.overrides import prompt_versions, skill_versions
from mcp_django.overrides.prompt_language import PromptError, read
from mcp_django.overrides.texts import (
    MAX_ARGUMENTS,
    PROMPT_COLUMNS,
    PROMPT_NAME,
    SKILL_COLUMNS,
    TextArgument,
    arguments_of,
    build_prompt,
    build_skill,
    is_taken as is_of_code,
    written_prompt,
    written_skill,
)
from mcp_django.protocol import shapes
from mcp_django.protocol.content import Message, Text
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.revisions import LATEST
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.server import all_servers

# Arguments as a table of inputs -------------------------------------------------------------------

BLANK_ROWS = 3
_COLUMNS = ("name", "description", "required", "choices")

Row = dict[str, Any]


class ArgumentsWidget(forms.Widget):
    """A row for each argument, and some more to fill in; the table needs no script."""

    template = "admin/mcp_django/prompt_arguments.html"

    def render(
        self, name: str, value: Any, attrs: Mapping[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """The table; rows without a name are arguments that are not there."""
        rows = [*_shown(value), *[dict.fromkeys(_COLUMNS, "") for _row in range(BLANK_ROWS)]]
        rows = rows[:MAX_ARGUMENTS]
        prefix = (attrs or {}).get("id", f"id_{name}")
        described = (attrs or {}).get("aria-describedby", "")
        context = {"rows": rows, "name": name, "prefix": prefix, "described": described}
        # Of the site's own templates, as the rest of the page: forms may be rendered by others.
        return render_to_string(self.template, context)

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[Row]:
        """The rows that have a name, in their order."""
        return [row for row in _sent(data, name) if row["name"]]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """No row at all is what a form without arguments sends."""
        return False

    def id_for_label(self, id_: str) -> str:
        """The table is labelled as a whole."""
        return ""


def _shown(value: Any) -> Iterator[Row]:
    """What was kept, or sent and refused, as texts for inputs."""
    for one in value if isinstance(value, list) else ():
        if isinstance(one, Mapping):
            choices = one.get("choices") or ()
            lines = choices if isinstance(choices, list) else ()
            yield {**one, "choices": "\n".join(map(str, lines))}


def _sent(data: Any, name: str) -> Iterator[Row]:
    for index in range(MAX_ARGUMENTS):
        key = f"{name}-{index}"
        lines = (data.get(f"{key}-choices") or "").splitlines()
        yield {
            "name": (data.get(f"{key}-name") or "").strip(),
            "description": (data.get(f"{key}-description") or "").strip(),
            "required": bool(data.get(f"{key}-required")),
            "choices": [line.strip() for line in lines if line.strip()],
        }


class ArgumentsField(forms.Field):
    """Arguments as the row keeps them."""

    widget = ArgumentsWidget

    def __init__(self) -> None:
        super().__init__(
            required=False,
            label=_("Arguments"),
            help_text=_(
                "Empty a name to take its argument away. Save and continue editing for more rows."
            ),
        )

    def to_python(self, value: Any) -> list[Row]:
        """The arguments, as they are kept.

        Raises:
            ValidationError: one of them is none, or there are two of one name.
        """
        try:
            return [one.as_json() for one in arguments_of(value or [])]
        except PromptError as exc:
            raise ValidationError(str(exc)) from None

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether they are others than before."""
        return bool(list(initial or []) != list(data or []))


# Preview of a prompt ------------------------------------------------------------------------------

SAMPLE = "sample-"
# What the form sends and a preview of it has no use for.
_NOT_KEPT = ("csrfmiddlewaretoken", "_save", "_continue", "_addanother", "_again")


def _previewed_prompt(prompt: PromptText, data: Any) -> dict[str, Any]:
    """Its messages with values to try, and its entry in the list."""
    offered = build_prompt(
        written_prompt({name: getattr(prompt, name) for name in PROMPT_COLUMNS})
    ).prompt
    arguments = arguments_of(prompt.arguments)
    values = {one.name: data.get(f"{SAMPLE}{one.name}", _sample(one)) for one in arguments}
    refused, shown = "", []
    try:
        parsed = offered.arguments.parse(encode(values))
        shown = list(map(_shown_message, offered.callable(**parsed)))
    except (InvalidArguments, InvalidParams) as exc:
        refused = str(exc)
    wire = shapes.project_prompt(describe(offered), LATEST)
    return {
        "kept": list(_kept(data)),
        "samples": [
            {
                "field": f"{SAMPLE}{one.name}",
                "name": one.name,
                "description": one.description,
                "required": one.required,
                "choices": one.choices,
                "value": values[one.name],
            }
            for one in arguments
        ],
        "refused": refused,
        "messages_shown": shown,
        "entry": json.dumps(wire, indent=2, ensure_ascii=False),
    }


def _sample(argument: TextArgument) -> str:
    """A value that shows where it went."""
    return argument.choices[0] if argument.choices else f"«{argument.name}»"


def _shown_message(message: Message) -> Mapping[str, str]:
    content = message.content
    return {"role": message.role, "text": content if isinstance(content, str) else _text(content)}


def _text(content: Any) -> str:
    return content.text if isinstance(content, Text) else str(content)


def _kept(data: Any) -> Iterator[tuple[str, str]]:
    """What the form has sent, to be sent again with other values."""
    for name, values in data.lists():
        if name not in _NOT_KEPT and not name.startswith(SAMPLE):
            yield from ((name, value) for value in values)


# The form of a prompt -----------------------------------------------------------------------------


def _is_prompt_taken(server: str, name: str) -> bool:
    """Whether code has a prompt that answers to this name, which would be offered instead."""
    return any(one.name == server and one.answering("prompt", name) for one in all_servers())


PROMPTS = Kind(
    noun="prompt",
    offered_among="prompts",
    versions=prompt_versions,
    error=PromptError,
    is_taken=_is_prompt_taken,
    previewed=_previewed_prompt,
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
    """A prompt that is written in the admin."""

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


# The admin of prompts -----------------------------------------------------------------------------


@admin.register(PromptText)
class PromptTextAdmin(TextAdmin):
    """The list of written prompts and the form of one."""

    kind = PROMPTS
    form = PromptForm
    what_it_is = ("title", "description")
    what_it_says = ("arguments", "text")
    list_display = ["name", "server", "title", "is_enabled", "state", "version", "changed_at"]
    search_fields = ["name", "title", "description", "text"]
    actions = ["enable", "disable", "duplicate"]

    @admin.action(description=_("Enable the selected prompts"), permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[PromptText]) -> None:
        """Offer them."""
        self.switch(request, queryset, is_enabled=True)

    @admin.action(description=_("Disable the selected prompts"), permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[PromptText]) -> None:
        """Offer them no more."""
        self.switch(request, queryset, is_enabled=False)

    @admin.action(description=_("Duplicate to another server…"), permissions=["add"])
    def duplicate(
        self, request: HttpRequest, queryset: QuerySet[PromptText]
    ) -> HttpResponseBase | None:
        """Ask for the server, and write them down once more there, switched off."""
        servers = [one.name for one in all_servers()]
        target = request.POST.get("to")
        if target not in servers:
            return self._ask_for_server(request, list(queryset), servers)
        with transaction.atomic(using=queryset.db):
            known = set(_names_on(target, queryset))
            copied = []
            for prompt in queryset:
                if prompt.name not in known and not _is_prompt_taken(target, prompt.name):
                    known.add(prompt.name)
                    copied.append(_copy(prompt, target))
            for copy in copied:
                prompt_versions.keep(copy, author=request.user, based_on=0)
                self.log_addition(request, copy, _now("Duplicated from another server."))
        self._tell_of_copies(request, len(copied), left=queryset.count() - len(copied))
        return None

    def _ask_for_server(
        self, request: HttpRequest, prompts: list[PromptText], servers: list[str]
    ) -> TemplateResponse:
        """The question where copies go."""
        return self._page(
            request,
            "prompt_duplicate",
            _now("Duplicate to another server"),
            prompts=prompts,
            servers=servers,
            action_checkbox_name=ACTION_CHECKBOX_NAME,
        )

    def _tell_of_copies(self, request: HttpRequest, copied: int, *, left: int) -> None:
        text = ngettext("%(n)d prompt was copied.", "%(n)d prompts were copied.", copied)
        self.message_user(request, text % {"n": copied}, messages.SUCCESS)
        if left:
            text = ngettext(
                "%(n)d prompt was left out, as there is one of its name.",
                "%(n)d prompts were left out, as there are some of their names.",
                left,
            )
            self.message_user(request, text % {"n": left}, messages.WARNING)


def _names_on(server: str, queryset: QuerySet[PromptText]) -> Iterable[str]:
    everywhere = queryset.model._default_manager.using(queryset.db)
    return everywhere.filter(server=server).values_list("name", flat=True)


def _copy(prompt: PromptText, server: str) -> PromptText:
    return PromptText(
        server=server,
        name=prompt.name,
        is_enabled=False,
        title=prompt.title,
        description=prompt.description,
        arguments=prompt.arguments,
        text=prompt.text,
        groups=prompt.groups,
        permissions=prompt.permissions,
        scopes=prompt.scopes,
    )


# Preview of a skill -------------------------------------------------------------------------------


def _previewed_skill(skill: Skill, _data: Any) -> dict[str, Any]:
    """Its files, as clients read them, and its entry in the list."""
    files = build_skill(written_skill({name: getattr(skill, name) for name in SKILL_COLUMNS}))
    files.sort(key=lambda one: one.uri)
    entry = entry_of(next(one for one in files if one.frontmatter is not None), files)
    return {
        "entry": json.dumps(entry, indent=2, ensure_ascii=False),
        "files": [{"uri": one.uri, "text": one.callable()} for one in files],
    }


# The form of a skill ------------------------------------------------------------------------------


def _is_skill_taken(server: str, name: str) -> bool:
    """Whether code has a skill of this name, which would be offered instead."""
    return any(one.name == server and is_of_code(one.resources, name) for one in all_servers())


SKILLS = Kind(
    noun="skill",
    offered_among="resources",
    versions=skill_versions,
    error=SkillError,
    is_taken=_is_skill_taken,
    previewed=_previewed_skill,
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
    """A skill that is written in the admin."""

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


# The admin of skills ------------------------------------------------------------------------------


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
