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

from mcp_django.admin.playground.forms import SchemaForm, TextInput
from mcp_django.conf import get_settings
from mcp_django.models.calls import new_code

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
        kind = _kind_of(str(one.get("method")), params)
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


def _kind_of(method: str, params: Wire) -> str:
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


# ``State``: signed data in the form ---------------------------------------------------------------

SALT = "mcp_django.admin.playground"
MAX_BYTES = 1024 * 1024
CONFIRM, ASK, FOLLOW = "confirm", "ask", "follow"


class BadState(Exception):
    """The state is not of this site, user or session, or too old; the text is for the page."""


class TooLarge(Exception):
    """What would have to be remembered does not fit into a form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A request that waits for a yes or for answers, or a task that goes on.

    The server keeps nothing between two pages, so the form carries what the next page has to know.
    What was shown to be confirmed is what runs, and a question is answered for the call that asked
    it.

    The state holds for one user in one session, for as long as a question may be answered, and no
    longer. It is not encrypted: it holds what the same user entered or was shown.
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
    """Of the user, round by round."""
    history: list[Any] = field(default_factory=list)
    """The exchanges of earlier rounds, cut for being shown."""
    nonce: str = field(default_factory=new_code)

    def sign(self) -> str:
        """The state as text that this site alone can have written.

        Raises:
            TooLarge: it would not come back.
        """
        signed = signing.dumps(asdict(self), salt=SALT, serializer=_Exact, compress=True)
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        # The answers to be entered have to fit beside it.
        if len(signed) > min(MAX_BYTES, (limit or 2 * MAX_BYTES) // 2):
            raise TooLarge
        return signed


class _Exact:
    """JSON in which no number changes on its way."""

    def dumps(self, obj: Any) -> bytes:
        return json.dumps(obj, separators=(",", ":")).encode("latin-1")

    def loads(self, data: bytes) -> Any:
        return json.loads(data.decode("latin-1"))


def read_state(request: HttpRequest, server: str) -> State:
    """The state in a form that was sent.

    Raises:
        BadState: it is none for this page, user and session.
    """
    seconds = get_settings().question_timeout
    try:
        plain = signing.loads(
            request.POST.get("state", ""),
            salt=SALT,
            serializer=_Exact,
            max_age=timedelta(seconds=seconds),
        )
    except signing.SignatureExpired:
        raise BadState(gettext("This page was open for too long; begin again.")) from None
    except (signing.BadSignature, ValueError):
        raise BadState(gettext("This page was changed on its way; begin again.")) from None
    state = State(**plain)
    if state.owner != owner_of(request) or state.server != server:
        raise BadState(gettext("This page belongs to another session; begin again."))
    return state


def owner_of(request: HttpRequest) -> str:
    """What names the user and the session of a request, and tells nothing about them."""
    user: Any = request.user
    key = getattr(getattr(request, "session", None), "session_key", None)
    named = json.dumps([str(user.pk), key])
    return salted_hmac(SALT, named, algorithm="sha256").hexdigest()
