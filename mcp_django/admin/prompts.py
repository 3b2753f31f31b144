"""Prompts that are written here, in the admin."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.admin.prompts_form import PROMPTS, PromptForm, is_taken
from mcp_django.admin.texts import TextAdmin
from mcp_django.models import PromptText
from mcp_django.overrides.prompt_versions import keep
from mcp_django.server import all_servers


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
                if prompt.name not in known and not is_taken(target, prompt.name):
                    known.add(prompt.name)
                    copied.append(_copy(prompt, target))
            for copy in copied:
                keep(copy, author=request.user, based_on=0)
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
