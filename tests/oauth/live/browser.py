"""A browser without a window: cookies, redirects within the site, and the forms of its pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import TracebackType
from typing import Self
from urllib.parse import urljoin, urlsplit

import httpx

SECONDS = 60
HOPS = 10


@dataclass(slots=True)
class Form:
    """A form of a page: its fields, and its buttons, whose values are sent when pressed."""

    action: str = ""
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[tuple[str, str]] = field(default_factory=list)


class Browser:
    """A browser whose user is `username`; the password is the same unless it is given."""

    def __init__(self, username: str = "ada", *, password: str = "") -> None:
        self.username = username
        self._password = password or username
        self.page: httpx.Response | None = None
        self._http = httpx.Client(timeout=SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.close()

    def authorize(self, url: str) -> str:
        """Open an authorization request, sign in if required, and allow it; return the address."""
        landed = self.open(url)
        if landed is None and self._has_field("password"):
            landed = self.sign_in()
        return landed or self.press("allow")

    def deny(self, url: str) -> str:
        """Do the same as `authorize`, but deny the request."""
        landed = self.open(url)
        if landed is None and self._has_field("password"):
            landed = self.sign_in()
        return landed or self.press("deny")

    def open(self, url: str) -> str | None:
        """Open an address; return `None` for a page of the site, else the address outside of it."""
        return self._arrive(self._http.get(url))

    def sign_in(self) -> str | None:
        """Submit the sign-in form of the current page."""
        return self._submit(self._form("password"), username=self.username, password=self._password)

    def press(self, button: str) -> str:
        """Press a button of the current page, and return the address outside of the site."""
        form = next(
            (
                candidate
                for candidate in self.forms()
                if any(button in pair for pair in candidate.buttons)
            ),
            None,
        )
        assert form is not None, f"There is no button {button!r}.\n{self.text}"
        name, value = next(pair for pair in form.buttons if button in pair)
        landed = self._submit(form, **{name: value})
        assert landed is not None, self.text
        return landed

    def send_without_csrf(self, name: str, value: str) -> httpx.Response:
        """Submit a form without its CSRF token, as another site can make the browser do."""
        assert self.page is not None
        form = next(candidate for candidate in self.forms() if (name, value) in candidate.buttons)
        fields = {key: text for key, text in form.fields if key != "csrfmiddlewaretoken"}
        address = urljoin(str(self.page.url), form.action)
        return self._http.post(address, data={**fields, name: value})

    @property
    def text(self) -> str:
        assert self.page is not None
        return self.page.text

    def forms(self) -> list[Form]:
        reader = _Forms()
        reader.feed(self.text)
        return reader.forms

    def _form(self, name: str) -> Form:
        return next(form for form in self.forms() if name in dict(form.fields))

    def _has_field(self, name: str) -> bool:
        return any(name in dict(form.fields) for form in self.forms())

    def _submit(self, form: Form, **values: str) -> str | None:
        assert self.page is not None
        fields = [pair for pair in form.fields if pair[0] not in values] + [*values.items()]
        data: dict[str, list[str]] = {}
        for name, value in fields:
            data.setdefault(name, []).append(value)
        here = str(self.page.url)
        # Browsers send the page of a form; Django requires it on a site with HTTPS.
        headers = {"Referer": here, "Origin": _origin(here)}
        return self._arrive(self._http.post(urljoin(here, form.action), data=data, headers=headers))

    def _arrive(self, response: httpx.Response) -> str | None:
        for _ in range(HOPS):
            if not response.is_redirect:
                self.page = response
                return None
            target = urljoin(str(response.url), response.headers["location"])
            if _origin(target) != _origin(str(response.url)):
                return target
            response = self._http.get(target)
        raise AssertionError(f"Redirected in circles: {response.url}")


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "form":
            self.forms.append(Form(action=given.get("action", "")))
        if not self.forms or "name" not in given or "disabled" in given:
            return
        pair = (given["name"], given.get("value", "on" if tag == "input" else ""))
        kind = given.get("type", "submit" if tag == "button" else "text")
        if kind == "submit":
            self.forms[-1].buttons.append(pair)
        elif tag == "input" and (kind not in ("checkbox", "radio") or "checked" in given):
            self.forms[-1].fields.append(pair)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
