"""What a call asks, as a second form: each question with the fields that its answer has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.trying.forms import SchemaForm
from mcp_django.admin.trying.inputs import TextInput

Wire = Mapping[str, Any]

FORM, PAGE, SAMPLING, ROOTS = "form", "page", "sampling", "roots"
ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"
ACTIONS: Mapping[str, tuple[tuple[str, Any], ...]] = {
    FORM: ((ACCEPT, _("Accept")), (DECLINE, _("Decline")), (CANCEL, _("Cancel"))),
    PAGE: (
        (ACCEPT, _("I have done it, go on")),
        (DECLINE, _("Decline")),
        (CANCEL, _("Cancel")),
    ),
    SAMPLING: ((ACCEPT, _("Answer as the model")), (DECLINE, _("Refuse"))),
    ROOTS: ((ACCEPT, _("Answer")), (DECLINE, _("Refuse"))),
}
# Clients refuse these by an error, for which the specification has this code.
REFUSED: Wire = {"error": {"code": -1, "message": "The user refused."}}


class _ActionForm(forms.Form):
    """What is done with a question, and the text of an answer that is text."""

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["action"] = forms.ChoiceField(
            label=_("What do you do?"),
            choices=ACTIONS[kind],
            initial=ACCEPT,
            widget=forms.RadioSelect,
        )
        if kind == SAMPLING:
            self.fields["text"] = TextInput(
                label=_("What the model says"),
                widget=forms.Textarea({"class": "vLargeTextField mcp-growing", "rows": 4}),
            )
        if kind == ROOTS:
            self.fields["text"] = TextInput(
                label=_("Folders"),
                help_text=_("URIs that begin with file://, one per line."),
                widget=forms.Textarea({"class": "vLargeTextField mcp-growing", "rows": 3}),
            )


@dataclass(slots=True)
class Question:
    """One question with its forms, as the template shows it."""

    key: str
    kind: str
    params: Wire
    action: _ActionForm
    form: SchemaForm | None = None

    @property
    def message(self) -> str:
        """What the server says to the person."""
        return str(self.params.get("message", ""))

    @property
    def url(self) -> str:
        """The page to visit, or a path of this site; empty if it is neither."""
        url = self.shown_url
        is_path = url.startswith("/") and not url.startswith(("//", "/\\"))
        try:
            return url if is_path or urlsplit(url).scheme in ("http", "https") else ""
        except ValueError:
            return ""

    @property
    def shown_url(self) -> str:
        """The address as text."""
        return str(self.params.get("url", ""))

    @property
    def said(self) -> list[tuple[str, str]]:
        """What the model is asked to go on with: who said it, and what."""
        found = []
        if system := self.params.get("systemPrompt"):
            found.append(("system", str(system)))
        for message in self.params.get("messages", ()):
            content = message["content"]
            blocks = content if isinstance(content, list) else [content]
            found += [(str(message["role"]), _words(block)) for block in blocks]
        return found

    def is_answered(self) -> bool:
        """Whether what was entered is an answer; else its forms say why."""
        is_valid = self.action.is_valid()
        if not is_valid or self.action.cleaned_data["action"] != ACCEPT or self.form is None:
            return is_valid
        return self.form.is_valid()

    def answer(self) -> Wire:
        """The answer as a client sends it."""
        entered = self.action.cleaned_data
        action = entered["action"]
        if self.kind in (FORM, PAGE):
            if action != ACCEPT:
                return {"action": action}
            content = {} if self.form is None else {"content": self.form.values}
            return {"action": ACCEPT, **content}
        if action != ACCEPT:
            return REFUSED
        if self.kind == SAMPLING:
            return {
                "role": "assistant",
                "content": {"type": "text", "text": entered["text"]},
                "model": "a-person",
                "stopReason": "endTurn",
            }
        return {
            "roots": [{"uri": one.strip()} for one in entered["text"].split("\n") if one.strip()]
        }


def questions_of(asked: Mapping[str, Any], data: QueryDict | None = None) -> list[Question]:
    """The questions with their forms, filled in with what was sent.

    A bound form of what was declined is not looked at, so it may be incomplete.
    """
    found = []
    for number, (key, one) in enumerate(asked.items()):
        params = one.get("params") or {}
        kind = kind_of(str(one.get("method")), params)
        action = _ActionForm(kind, data, prefix=f"question-{number}")
        form = None
        if kind == FORM:
            form = SchemaForm(
                dict(params.get("requestedSchema") or {}),
                data,
                name=f"question-{number}",
                is_prefilled=True,
                is_unfinished=data is not None and _is_refused(data, number),
            )
        found.append(Question(key, kind, params, action, form))
    return found


def kind_of(method: str, params: Wire) -> str:
    """What sort of answer is wanted."""
    if method == "elicitation/create":
        return PAGE if params.get("mode") == "url" else FORM
    return SAMPLING if method == "sampling/createMessage" else ROOTS


def _is_refused(data: QueryDict, number: int) -> bool:
    return data.get(f"question-{number}-action") != ACCEPT


def _words(block: Any) -> str:
    if isinstance(block, Mapping) and isinstance(block.get("text"), str):
        return str(block["text"])
    kind = block.get("type") if isinstance(block, Mapping) else block
    return f"({json.dumps(kind, ensure_ascii=False)})"
