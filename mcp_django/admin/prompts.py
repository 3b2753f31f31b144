"""The admin of prompts and skills that are written in the admin: lists, forms and previews.

Both forms show errors beside the fields that they concern, and detect that another user has
changed the text in the meantime (``admin.texts``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from mcp_django.admin.base import text_area, time_column
from mcp_django.admin.texts import AdminTextType, TextAdmin, TextForm
from mcp_django.components.resource import MAX_DESCRIPTION, is_skill_name
from mcp_django.exceptions import InvalidParams
from mcp_django.execution.handlers.prompts import describe
from mcp_django.execution.handlers.resources import skill_entry
from mcp_django.models import PromptText, Skill
from mcp_django.overrides import text_versions
from mcp_django.overrides.prompt_language import PromptError, parse_messages
from mcp_django.overrides.texts import (
    MAX_ARGUMENTS,
    PROMPT_COLUMNS,
    PROMPT_NAME,
    SKILL_COLUMNS,
    TextArgument,
    is_skill_name_taken as is_of_code,
    parse_arguments,
)
from mcp_django.protocol import projection
from mcp_django.protocol.content import Text
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.revisions import LATEST
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.server import all_servers
from mcp_django.tenants import of_tenant

BLANK_ROWS = 3
_COLUMNS = ("name", "description", "required", "choices")

Row = dict[str, Any]


class ArgumentsWidget(forms.Widget):
    """A table with a row for each argument and some empty rows; needs no JavaScript."""

    template = "admin/mcp_django/prompt_arguments.html"

    def render(
        self, name: str, value: Any, attrs: Mapping[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """Render the table."""
        rows: list[Row] = []
        for argument in value if isinstance(value, list) else ():
            if isinstance(argument, Mapping):
                choices = argument.get("choices")
                lines = choices if isinstance(choices, list) else ()
                rows.append({**argument, "choices": "\n".join(map(str, lines))})
        rows += [dict.fromkeys(_COLUMNS, "") for _row in range(BLANK_ROWS)]
        rows = rows[:MAX_ARGUMENTS]
        prefix = (attrs or {}).get("id", f"id_{name}")
        described = (attrs or {}).get("aria-describedby", "")
        context = {"rows": rows, "name": name, "prefix": prefix, "described": described}
        # Rendered with the site's templates: the form renderer may not find this one.
        return render_to_string(self.template, context)

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[Row]:
        """Return the rows that have a name, in order."""
        rows: list[Row] = []
        for index in range(MAX_ARGUMENTS):
            key = f"{name}-{index}"
            lines = (data.get(f"{key}-choices") or "").splitlines()
            row: Row = {
                "name": (data.get(f"{key}-name") or "").strip(),
                "description": (data.get(f"{key}-description") or "").strip(),
                "required": bool(data.get(f"{key}-required")),
                "choices": [line.strip() for line in lines if line.strip()],
            }
            if row["name"]:
                rows.append(row)
        return rows

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return false: a form without arguments sends no rows."""
        return False

    def id_for_label(self, id_: str) -> str:
        """Return no id: the label applies to the whole table."""
        return ""


class ArgumentsField(forms.Field):
    """The arguments of a prompt, as the row stores them."""

    widget = ArgumentsWidget

    def __init__(self) -> None:
        super().__init__(
            required=False,
            label=_("Arguments"),
            help_text=_(
                "Clear a name to remove its argument. Save and continue editing for more rows."
            ),
        )

    def to_python(self, value: Any) -> list[Row]:
        """Return the arguments as the row stores them.

        Raises:
            ValidationError: an argument is invalid, or two have the same name.
        """
        try:
            return [argument.as_json() for argument in parse_arguments(value or [])]
        except PromptError as exc:
            raise ValidationError(str(exc)) from None

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the arguments differ from the initial ones."""
        return bool(list(initial or []) != list(data or []))


SAMPLE = "sample-"
# Submitted fields that the preview does not need.
_NOT_RESUBMITTED = ("csrfmiddlewaretoken", "_save", "_continue", "_addanother", "_again")


def _prompt_preview_context(prompt: PromptText, data: Any) -> dict[str, Any]:
    """Return the context of the preview: messages for sample values, and the list entry."""
    component = text_versions.PROMPTS.build(prompt).prompt
    arguments = parse_arguments(prompt.arguments)
    values = {
        argument.name: data.get(f"{SAMPLE}{argument.name}", _sample(argument))
        for argument in arguments
    }
    problem, sample_messages = "", []
    try:
        parsed = component.arguments.parse(encode(values))
        sample_messages = [
            {"role": message.role, "text": _text_of(message.content)}
            for message in component.callable(**parsed)
        ]
    except (InvalidArguments, InvalidParams) as exc:
        problem = str(exc)
    wire = projection.project_prompt(describe(component), LATEST)
    return {
        # The submitted form data, to be submitted again with other sample values.
        "kept": [
            (name, text)
            for name, texts in data.lists()
            if name not in _NOT_RESUBMITTED and not name.startswith(SAMPLE)
            for text in texts
        ],
        "samples": [
            {
                "field": f"{SAMPLE}{argument.name}",
                "name": argument.name,
                "description": argument.description,
                "required": argument.required,
                "choices": argument.choices,
                "value": values[argument.name],
            }
            for argument in arguments
        ],
        "refused": problem,
        "messages_shown": sample_messages,
        "json_text": json.dumps(wire, indent=2, ensure_ascii=False),
    }


def _sample(argument: TextArgument) -> str:
    """Return a sample value that is easy to find in the messages."""
    return argument.choices[0] if argument.choices else f"«{argument.name}»"


def _text_of(content: Any) -> str:
    return content.text if isinstance(content, Text) else str(content)


def _is_prompt_taken(server: str, name: str) -> bool:
    """Return whether code has a prompt with this name or alias, which takes precedence."""
    return any(
        mcp_server.name == server and mcp_server.registry.find_by_name("prompt", name)
        for mcp_server in all_servers()
    )


PROMPTS = AdminTextType(
    text_type=text_versions.PROMPTS,
    component=("prompt", "{name}"),
    preview_template="prompt_preview",
    is_taken=_is_prompt_taken,
    preview_context=_prompt_preview_context,
)


class PromptForm(TextForm):
    """The form of a prompt that is written in the admin."""

    kind = PROMPTS

    arguments = ArgumentsField()
    text = forms.CharField(
        label=_("Text"),
        strip=False,
        widget=text_area(18, "mcp-text", dir="auto"),
        help_text=_(
            'Write {{ name }} to insert an argument. You can use {{ name|default:"…" }}, the '
            "filters capfirst, lower, quote, trim and upper, and {% if name %} … {% elif name == "
            '"…" %} … {% else %} … {% endif %}. A line “--- assistant” or “--- user” begins the '
            "next message."
        ),
    )

    class Meta:
        model = PromptText
        # A preview lists errors in this order.
        fields = ["server", "is_enabled", *PROMPT_COLUMNS]
        widgets = {"description": text_area(3, dir="auto")}

    def clean_name(self) -> str:
        """Return the name, which clients send unchanged.

        Raises:
            ValidationError: the name is invalid.
        """
        name = str(self.cleaned_data["name"])
        if not PROMPT_NAME.fullmatch(name):
            raise ValidationError(gettext("Use up to 128 characters from A-Z a-z 0-9 _ . -"))
        return name

    def clean_dependent_fields(self, cleaned: dict[str, Any]) -> None:
        """Check that the text can be parsed with these arguments."""
        if "text" not in cleaned or "arguments" not in cleaned:
            return
        try:
            parse_messages(
                cleaned["text"],
                [argument.name for argument in parse_arguments(cleaned["arguments"])],
            )
        except PromptError as exc:
            self.add_error("text", str(exc))


@admin.register(PromptText)
class PromptTextAdmin(TextAdmin):
    """The admin of prompts that are written in the admin."""

    kind = PROMPTS
    form = PromptForm
    identity_fields = ("title", "description")
    content_fields = ("arguments", "text")
    list_display = [
        "name",
        "server",
        "title",
        "is_enabled",
        "state",
        "version",
        time_column("changed_at", _("changed")),
    ]
    search_fields = ["name", "title", "description", "text"]
    actions = ["enable", "disable", "duplicate"]

    @admin.action(description=_("Duplicate to another server…"), permissions=["add"])
    def duplicate(
        self, request: HttpRequest, queryset: QuerySet[PromptText]
    ) -> HttpResponseBase | None:
        """Ask for a server, and copy the prompts to it, disabled."""
        servers = [server.name for server in all_servers()]
        target = request.POST.get("to")
        if target not in servers:
            return self._page(
                request,
                "prompt_duplicate",
                gettext("Duplicate to another server"),
                prompts=list(queryset),
                servers=servers,
                action_checkbox_name=ACTION_CHECKBOX_NAME,
            )
        with transaction.atomic(using=queryset.db):
            rows = of_tenant(queryset.model, queryset.db).filter(server=target)
            names = set(rows.values_list("name", flat=True))
            copied = []
            for prompt in queryset:
                if prompt.name not in names and not _is_prompt_taken(target, prompt.name):
                    names.add(prompt.name)
                    columns = {column: getattr(prompt, column) for column in PROMPT_COLUMNS}
                    copied.append(PromptText(server=target, is_enabled=False, **columns))
            for copy in copied:
                text_versions.PROMPTS.save(copy, author=request.user, based_on=0)
                self.log_addition(request, copy, gettext("Duplicated from another server."))
        skipped = queryset.count() - len(copied)
        text = ngettext("%(n)d prompt was copied.", "%(n)d prompts were copied.", len(copied))
        self.message_user(request, text % {"n": len(copied)}, messages.SUCCESS)
        if skipped:
            text = ngettext(
                "%(n)d prompt was skipped, since its name is already in use.",
                "%(n)d prompts were skipped, since their names are already in use.",
                skipped,
            )
            self.message_user(request, text % {"n": skipped}, messages.WARNING)
        return None


# Skills -------------------------------------------------------------------------------------------


def _skill_preview_context(skill: Skill, _data: Any) -> dict[str, Any]:
    """Return the context of the preview: the files that clients read, and the list entry."""
    files = sorted(text_versions.SKILLS.build(skill), key=lambda file: file.uri)
    wire = skill_entry(next(file for file in files if file.frontmatter is not None), files)
    return {
        "json_text": json.dumps(wire, indent=2, ensure_ascii=False),
        "files": [{"uri": file.uri, "text": file.callable()} for file in files],
    }


SKILLS = AdminTextType(
    text_type=text_versions.SKILLS,
    component=("resource", "skill://{name}/SKILL.md"),
    preview_template="skill_preview",
    # A skill of this name in code takes precedence.
    is_taken=lambda server, name: any(
        mcp_server.name == server and is_of_code(mcp_server.resources, name)
        for mcp_server in all_servers()
    ),
    preview_context=_skill_preview_context,
)


class SkillForm(TextForm):
    """The form of a skill that is written in the admin."""

    kind = SKILLS
    multiline_fields = ("description", "text", "supporting_files")

    description = forms.CharField(
        label=_("Description"),
        max_length=MAX_DESCRIPTION,
        widget=text_area(3, dir="auto"),
        help_text=_(
            "What it does, and when to use it: models decide from this alone whether to read the "
            "skill."
        ),
    )
    text = forms.CharField(
        label=_("Instructions"),
        strip=False,
        widget=text_area(18, "mcp-text", dir="auto"),
        help_text=_(
            "In Markdown. Name the tools to use, and the files below, for example "
            "references/codes.md."
        ),
    )
    supporting_files = forms.CharField(
        label=_("Files"),
        strip=False,
        required=False,
        widget=text_area(8, "mcp-text", dir="auto"),
        help_text=_(
            "A model reads these files only if the instructions refer to them. A line “--- file: "
            "references/codes.md” begins a file."
        ),
    )

    class Meta:
        model = Skill
        # A preview lists errors in this order.
        fields = ["server", "is_enabled", *SKILL_COLUMNS]
        help_texts = {
            "license": _("For example the name of a license."),
            "compatibility": _("What a client needs to use the skill, if anything."),
        }

    def clean_name(self) -> str:
        """Return the name, which becomes part of URIs.

        Raises:
            ValidationError: the name is invalid.
        """
        name = str(self.cleaned_data["name"])
        if not is_skill_name(name):
            raise ValidationError(
                gettext("Use up to 64 of a-z, 0-9 and single hyphens, for example close-a-notice")
            )
        return name


@admin.register(Skill)
class SkillAdmin(TextAdmin):
    """The admin of skills that are written in the admin."""

    kind = SKILLS
    form = SkillForm
    identity_fields = ("description",)
    content_fields = ("text", "supporting_files")
    extra_fields = ("license", "compatibility")
    list_display = [
        "name",
        "server",
        "is_enabled",
        "state",
        "version",
        time_column("changed_at", _("changed")),
    ]
    search_fields = ["name", "description", "text", "supporting_files"]
    actions = ["enable", "disable"]
