"""Elicitation and other client requests as forms, and the signed state that links the steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.core import signing
from django.http import HttpRequest, QueryDict
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.admin.playground.forms import PlainTextField, SchemaForm
from mcp_django.conf import get_settings
from mcp_django.models.calls import new_code

Wire = Mapping[str, Any]

FORM, PAGE, SAMPLING, ROOTS = "form", "page", "sampling", "roots"
ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"
ACTION_CHOICES: Mapping[str, tuple[tuple[str, Any], ...]] = {
    FORM: ((ACCEPT, _("Accept")), (DECLINE, _("Decline")), (CANCEL, _("Cancel"))),
    PAGE: (
        (ACCEPT, _("Done, continue")),
        (DECLINE, _("Decline")),
        (CANCEL, _("Cancel")),
    ),
    SAMPLING: ((ACCEPT, _("Answer as the model")), (DECLINE, _("Refuse"))),
    ROOTS: ((ACCEPT, _("Answer")), (DECLINE, _("Refuse"))),
}
TEXT_ANSWERS: Mapping[str, tuple[Any, Any, int]] = {
    SAMPLING: (_("Response of the model"), "", 4),
    ROOTS: (_("Folders"), _("URIs that begin with file://, one per line."), 3),
}
"""The label, help text and rows of answers that are texts."""
# Clients refuse sampling and roots with an error; the specification has a code for it.
REFUSAL: Wire = {"error": {"code": -1, "message": "The user refused."}}


class _ActionForm(forms.Form):
    """The action for a client request, and the text of a text answer."""

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["action"] = forms.ChoiceField(
            label=_("Response"),
            choices=ACTION_CHOICES[kind],
            initial=ACCEPT,
            widget=forms.RadioSelect,
        )
        if kind in TEXT_ANSWERS:
            label, help_text, rows = TEXT_ANSWERS[kind]
            self.fields["text"] = PlainTextField(
                label=label,
                help_text=help_text,
                widget=forms.Textarea({"class": "vLargeTextField mcp-growing", "rows": rows}),
            )


@dataclass(slots=True)
class ClientRequestForm:
    """One client request with its forms, as the template shows it."""

    key: str
    kind: str
    params: Wire
    action: _ActionForm
    form: SchemaForm | None = None

    @property
    def message(self) -> str:
        """The message of the server to the user."""
        return str(self.params.get("message", ""))

    @property
    def url(self) -> str:
        """The HTTP(S) URL to visit, or a path of this site; empty for anything else."""
        url = self.shown_url
        is_path = url.startswith("/") and not url.startswith(("//", "/\\"))
        try:
            return url if is_path or urlsplit(url).scheme in ("http", "https") else ""
        except ValueError:
            return ""

    @property
    def shown_url(self) -> str:
        """The URL as text."""
        return str(self.params.get("url", ""))

    @property
    def messages(self) -> list[tuple[str, str]]:
        """The system prompt and messages of a sampling request, as pairs of role and text."""
        messages = []
        if system := self.params.get("systemPrompt"):
            messages.append(("system", str(system)))
        for message in self.params.get("messages", ()):
            content = message["content"]
            for block in content if isinstance(content, list) else [content]:
                if isinstance(block, Mapping) and isinstance(block.get("text"), str):
                    text = str(block["text"])
                else:
                    kind = block.get("type") if isinstance(block, Mapping) else block
                    text = f"({json.dumps(kind, ensure_ascii=False)})"
                messages.append((str(message["role"]), text))
        return messages

    def is_answered(self) -> bool:
        """Return whether the entered answer is valid; otherwise its forms have errors."""
        is_valid = self.action.is_valid()
        if not is_valid or self.action.cleaned_data["action"] != ACCEPT or self.form is None:
            return is_valid
        return self.form.is_valid()

    def answer(self) -> Wire:
        """Return the answer as a client sends it."""
        cleaned_data = self.action.cleaned_data
        action = cleaned_data["action"]
        if self.kind in (FORM, PAGE):
            if action != ACCEPT:
                return {"action": action}
            content = {} if self.form is None else {"content": self.form.values}
            return {"action": ACCEPT, **content}
        if action != ACCEPT:
            return REFUSAL
        if self.kind == SAMPLING:
            return {
                "role": "assistant",
                "content": {"type": "text", "text": cleaned_data["text"]},
                "model": "a-person",
                "stopReason": "endTurn",
            }
        return {
            "roots": [
                {"uri": line.strip()} for line in cleaned_data["text"].split("\n") if line.strip()
            ]
        }


def build_client_requests(
    client_requests: Mapping[str, Any], data: QueryDict | None = None
) -> list[ClientRequestForm]:
    """Return the client requests with their forms, bound to the submitted data.

    The form of a declined request is not validated, so it may be incomplete.
    """
    request_forms = []
    for number, (key, client_request) in enumerate(client_requests.items()):
        params = client_request.get("params") or {}
        method = str(client_request.get("method"))
        if method == "elicitation/create":
            kind = PAGE if params.get("mode") == "url" else FORM
        else:
            kind = SAMPLING if method == "sampling/createMessage" else ROOTS
        name = f"question-{number}"
        action = _ActionForm(kind, data, prefix=name)
        form = None
        if kind == FORM:
            form = SchemaForm(
                dict(params.get("requestedSchema") or {}),
                data,
                name=name,
                is_prefilled=True,
                is_unfinished=data is not None and data.get(f"{name}-action") != ACCEPT,
            )
        request_forms.append(ClientRequestForm(key, kind, params, action, form))
    return request_forms


SALT = "mcp_django.admin.playground"
MAX_STATE_BYTES = 1024 * 1024
CONFIRM, ASK, FOLLOW = "confirm", "ask", "follow"


class InvalidState(Exception):
    """The state was changed, expired, or is of another session; the text is for the page."""


class StateTooLarge(Exception):
    """The state is too large for a form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundState:
    """A request that waits for confirmation or for answers, or a task that is running.

    The server stores nothing between two pages, so the form contains what the next page needs.
    The signature ensures that the confirmed call is the one that was shown, and that answers belong
    to the call that requested them.

    The state is valid for one user in one session, as long as a client request may be answered. It
    is not encrypted: it contains what the same user entered or was shown.
    """

    owner: str
    server: str
    kind: str
    key: str
    user: str
    revision: str
    step: str
    method: str
    params: Mapping[str, Any]
    request_state: str = ""
    questions: Mapping[str, Any] = field(default_factory=dict)
    answers: list[Mapping[str, Any]] = field(default_factory=list)
    """The answers of the user, by round."""
    history: list[Any] = field(default_factory=list)
    """The messages of earlier rounds, truncated for display."""
    nonce: str = field(default_factory=new_code)

    def sign(self) -> str:
        """Return the state as signed text.

        Raises:
            StateTooLarge: Django would reject a form with it.
        """
        signed = signing.dumps(asdict(self), salt=SALT, compress=True)
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        # The next request also contains the answers.
        if len(signed) > min(MAX_STATE_BYTES, (limit or 2 * MAX_STATE_BYTES) // 2):
            raise StateTooLarge
        return signed


def read_state(request: HttpRequest, server: str) -> PlaygroundState:
    """Return the state in a submitted form.

    Raises:
        InvalidState: it is not valid for this page, user and session.
    """
    seconds = get_settings().client_request_timeout
    try:
        values = signing.loads(
            request.POST.get("state", ""),
            salt=SALT,
            max_age=timedelta(seconds=seconds),
        )
    except signing.SignatureExpired:
        raise InvalidState(gettext("This page has expired; start again.")) from None
    except (signing.BadSignature, ValueError):
        raise InvalidState(gettext("The data of this page is not valid; start again.")) from None
    state = PlaygroundState(**values)
    if state.owner != session_digest(request) or state.server != server:
        raise InvalidState(gettext("This page belongs to another session; start again."))
    return state


def session_digest(request: HttpRequest) -> str:
    """Return a keyed hash that identifies the user and session without revealing them."""
    user: Any = request.user
    key = getattr(getattr(request, "session", None), "session_key", None)
    identity = json.dumps([str(user.pk), key])
    return salted_hmac(SALT, identity, algorithm="sha256").hexdigest()
