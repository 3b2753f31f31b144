"""``State``: what the next page has to know, signed in its form, since nothing is kept here.

What was shown to be confirmed is what runs, and a question is answered for the call that asked it.
It holds for one user in one session, for as long as a question may be answered, and no longer. It
is not encrypted: it holds what the same user entered or was shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core import signing
from django.http import HttpRequest
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from mcp_django.conf import get_settings
from mcp_django.models.calls import new_code

SALT = "mcp_django.admin.trying"
MAX_BYTES = 1024 * 1024
CONFIRM, ASK, FOLLOW = "confirm", "ask", "follow"


class BadState(Exception):
    """The state is not of this site, user or session, or too old; the text is for the page."""


class TooLarge(Exception):
    """What would have to be remembered does not fit into a form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A request that waits for a yes or for answers, or a task that goes on."""

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
        raise BadState(_("This page was open for too long; begin again.")) from None
    except (signing.BadSignature, ValueError):
        raise BadState(_("This page was changed on its way; begin again.")) from None
    state = State(**plain)
    if state.owner != owner_of(request) or state.server != server:
        raise BadState(_("This page belongs to another session; begin again."))
    return state


def owner_of(request: HttpRequest) -> str:
    """What names the user and the session of a request, and tells nothing about them."""
    user: Any = request.user
    key = getattr(getattr(request, "session", None), "session_key", None)
    named = json.dumps([str(user.pk), key])
    return salted_hmac(SALT, named, algorithm="sha256").hexdigest()
