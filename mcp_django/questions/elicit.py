"""Questions to the user: a form, or a page to visit (MCP 2026-07-28, "Elicitation")."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from mcp_django.exceptions import ElicitationDeclined
from mcp_django.questions.question import MalformedAnswer, Question, Unfinished, UnfitAnswer
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.schema.elicitation import elicitation_form

# RFC 3986, appendix A. What else is in an address is shown to the user in one way and read by his
# browser in another.
URL_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# A person ticks boxes; each wrong entry of a longer list would be explained one by one.
MAX_CHOSEN = 1000
NOT_YET = "This is not finished yet. Come back once you have done it on the page."


class Elicit(Question):
    """Ask the user to fill in a form.

    ``schema`` declares it (schema.elicitation says by what); the answer is an instance of it.

    Raises:
        ImproperlyConfigured: no host could show such a form, or it asks for a secret (ASK-15).
    """

    method = "elicitation/create"
    needs = "elicitation"

    def __init__(self, message: str, schema: Any = None, *, key: str | None = None) -> None:
        super().__init__(key=key)
        self.message = str(message)
        self._form = elicitation_form(schema)
        self.uses_database = self._form.uses_database

    def to_params(self) -> dict[str, Any]:
        """Message and form."""
        return self._params(self.message)

    def corrected(self, problem: str) -> dict[str, Any]:
        """The same form, with what has to be corrected before the message."""
        return self._params(f"Please correct this:\n{problem}\n\n{self.message}")

    def _params(self, message: str) -> dict[str, Any]:
        return {"mode": "form", "message": message, "requestedSchema": self._form.json_schema}

    def read(self, answer: Mapping[str, Any]) -> Any:
        """The value of the form."""
        check_accepted(answer)
        content = answer.get("content")
        if content is None:
            content = {}
        check_content(content)
        try:
            return self._form.read(content)
        except InvalidArguments as exc:
            raise UnfitAnswer(str(exc)) from exc


class ElicitURL(Question):
    """Send the user to a page, for what must not pass through the client.

    To accept means to be willing to go there, not to have been there: ``done`` tells whether the
    page was completed, and until it does the question is asked again. Where it is true beforehand,
    nobody is asked.

    Raises:
        ValueError: the URL is not absolute, not HTTPS or carries credentials (ASK-16).
    """

    method = "elicitation/create"
    needs = "elicitation.url"

    def __init__(
        self,
        message: str,
        url: str,
        *,
        done: Callable[[], bool] | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(key=key)
        check_page(url)
        self.message = str(message)
        self.url = url
        self._done = done
        self.uses_database = done is not None

    def to_params(self) -> dict[str, Any]:
        """Message and address."""
        return {"mode": "url", "message": self.message, "url": self.url}

    def corrected(self, problem: str) -> dict[str, Any]:
        """The same address; the message says that it is not finished."""
        return {**self.to_params(), "message": f"{problem}\n\n{self.message}"}

    @property
    def is_settled(self) -> bool:
        """Whether the page was completed already, in an earlier call for example."""
        return self._done is not None and self._done()

    def read(self, answer: Mapping[str, Any]) -> None:
        """Nothing: what was entered on the page is the page's own affair."""
        check_accepted(answer)
        if self._done is not None and not self._done():
            raise Unfinished(NOT_YET)


def check_content(content: Any) -> None:
    """Refuse what no form can hold, before each member is looked at.

    Raises:
        MalformedAnswer: it is no object, or has a list that nobody can have chosen.
    """
    if not isinstance(content, Mapping):
        raise MalformedAnswer("content must be an object")
    if any(isinstance(value, list) and len(value) > MAX_CHOSEN for value in content.values()):
        raise MalformedAnswer(f"content has a list of more than {MAX_CHOSEN} choices")


def check_accepted(answer: Mapping[str, Any]) -> None:
    """Tell a yes from everything else.

    Raises:
        ElicitationDeclined: it is a no.
        MalformedAnswer: it is nothing of the kind.
    """
    action = answer.get("action")
    if action in ("decline", "cancel"):  # an unhashable value is compared, too
        raise ElicitationDeclined(action)
    if action != "accept":
        raise MalformedAnswer("action must be accept, decline or cancel")


def check_page(url: str) -> None:
    """Refuse an address that no user should be sent to.

    Raises:
        ValueError: saying which rule it breaks.
    """
    no_page = (
        f"{url!r} is no page; write https://…. Only ctx.elicit_url completes a path of the site, "
        "with BASE_URL or the address of the request."
    )
    if not URL_CHARACTERS.fullmatch(url):
        raise ValueError(no_page)
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError as exc:
        raise ValueError(no_page) from exc
    if parts.scheme not in {"https", "http"} or not parts.hostname or port == 0:
        raise ValueError(no_page)
    if "@" in parts.netloc:
        raise ValueError("The address of the page carries credentials; the page has to ask.")
    is_local = settings.DEBUG or parts.hostname in LOOPBACK
    if parts.scheme == "http" and not is_local:
        raise ValueError(f"{url!r} is not encrypted; users are sent to https:// only.")
