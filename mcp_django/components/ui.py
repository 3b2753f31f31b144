"""``UI``: the view in which a host shows what a tool answers.

MCP Apps (SEP-1865, 2026-01-26), "Resource Discovery" and "UI Resource Format". What is declared
here is what the host's sandbox will allow: everything else it has to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import timedelta
from typing import Any, Literal, get_args

from django.core.exceptions import ImproperlyConfigured

from mcp_django.protocol.uritemplate import check_uri

SCHEME = "ui://"
MIME_TYPE = "text/html;profile=mcp-app"
RESOURCE_URI = "ui/resourceUri"
"""Where hosts of before 2026 look for the view; deprecated by SEP-1865."""

Audience = Literal["model", "app"]
Feature = Literal["camera", "microphone", "geolocation", "clipboard_write"]
FEATURES: dict[str, str] = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboard_write": "clipboardWrite",
}
# What can be said of a tool that shows the view of another one, or none.
LINK = ("uri", "visibility")
# Nothing that could end a directive of the policy and begin another.
ORIGIN = re.compile(r"(?:https?|wss?)://(?:\*\.)?(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?")
# Labels of a host name; which of them a host takes is for the host to say.
DOMAIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


def address(server: str, tool: str) -> str:
    """Where the view of a tool is served that says nothing else."""
    return f"{SCHEME}{server}/{tool}"


@dataclass(frozen=True, slots=True)
class UI:
    """The view of a tool: a Django template, and what it may do in the host's sandbox.

    ``uri`` is the ``ui://`` address that it is served at, by default made of the names of server
    and tool; without a ``template`` it names a view that the server has already. ``visibility``
    says who may call the tool, ``"model"``, ``"app"`` or both, which is the default; hosts see to
    it. ``connect``, ``resources``, ``frames`` and ``base_uris`` are the origins
    (``"https://tiles.example.com"``) that the view may send requests to, load images, scripts,
    styles and fonts from, show in frames, and name in ``<base>``; the site's own is added where
    the page uses its static files. ``allow`` asks for ``"camera"``, ``"microphone"``,
    ``"geolocation"`` and ``"clipboard_write"``, ``border`` for a frame around it (``None``: as the
    host likes), ``domain`` for an origin of its own, in the form that the host documents.
    ``cache_ttl`` and ``cache_public`` say how long the page may be kept, and whether for everybody.

    Raises:
        ImproperlyConfigured: something of it cannot be meant; the message says what to write.
    """

    template: str = ""
    _: KW_ONLY
    uri: str = ""
    visibility: Sequence[Audience] = ()
    connect: Sequence[str] = ()
    resources: Sequence[str] = ()
    frames: Sequence[str] = ()
    base_uris: Sequence[str] = ()
    allow: Sequence[Feature] = ()
    border: bool | None = None
    domain: str = ""
    cache_ttl: timedelta = timedelta(0)
    cache_public: bool = False

    def __post_init__(self) -> None:
        _require(_is_text(self.template), f"{self.template!r} is no name of a template")
        _check_uri(self.uri)
        self._keep_some("visibility", get_args(Audience))
        self._keep_some("allow", FEATURES)
        for option in ("connect", "resources", "frames", "base_uris"):
            self._keep_origins(option)
        _require(
            self.border is None or isinstance(self.border, bool),
            f"border is {self.border!r}; write True or False",
        )
        _require(
            _is_text(self.domain) and (not self.domain or DOMAIN.fullmatch(self.domain)),
            f"domain is {self.domain!r}; write a host name as the host documents it, such as "
            "'www-example-com.oaiusercontent.com'",
        )
        if not self.template:
            self._check_link()

    def _check_link(self) -> None:
        """Refuse what nobody would hear of: without a template there is no page to say it."""
        said = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
        _require(
            bool(said),
            "UI() says nothing: write UI('app/view.html'), or UI(visibility=['app']) for a tool "
            "that only views call",
        )
        lost = [name for name in said if name not in LINK]
        _require(
            not lost,
            f"{', '.join(lost)}: without a template there is no view to say this of; say it "
            "where the view is declared",
        )

    def _keep_some(self, option: str, known: Iterable[str]) -> None:
        found = self._keep(option)
        wrong = [one for one in found if one not in known]
        _require(
            not wrong,
            f"{option} has {wrong}; write some of {', '.join(map(repr, known))}",
        )

    def _keep_origins(self, option: str) -> None:
        for one in self._keep(option):
            _require(
                isinstance(one, str) and ORIGIN.fullmatch(one),
                f"{option} has {one!r}; write origins without a path: 'https://cdn.example.com', "
                "'https://*.example.com'",
            )

    def _keep(self, option: str) -> tuple[Any, ...]:
        given = getattr(self, option)
        is_list = isinstance(given, Iterable) and not isinstance(given, str)
        _require(is_list, f"{option} is a list: write {option}=[{given!r}]")
        found = tuple(given)
        object.__setattr__(self, option, found)
        return found

    @classmethod
    def of(cls, declared: UI | str | None) -> UI | None:
        """What a decorator was given: the name of a template, all of it, or nothing.

        Raises:
            ImproperlyConfigured: it is something else.
        """
        if declared is None or isinstance(declared, UI):
            return declared
        if declared and isinstance(declared, str):
            return cls(declared)
        raise ImproperlyConfigured(f"ui is {declared!r}; write 'app/view.html' or UI(…).")

    def on(self, server: str, tool: str) -> UI:
        """The same with its address: made of these names, if it has none and needs one."""
        if self.uri or not self.template:
            return self
        return replace(self, uri=address(server, tool))

    def of_tool(self, *, is_linked: bool = True) -> dict[str, Any]:
        """What a listed tool says of it in ``_meta``; without the link if that leads nowhere."""
        said: dict[str, Any] = {}
        if self.uri and is_linked:
            said["resourceUri"] = self.uri
        if self.visibility:
            said["visibility"] = list(self.visibility)
        meta: dict[str, Any] = {"ui": said} if said else {}
        if "resourceUri" in said:
            meta[RESOURCE_URI] = self.uri
        return meta

    def of_view(self, *, origins: Iterable[str] = ()) -> dict[str, Any]:
        """What the resource says of itself in ``_meta``; ``origins`` are more to load from."""
        csp = {
            "connectDomains": self.connect,
            "resourceDomains": tuple(dict.fromkeys((*self.resources, *origins))),
            "frameDomains": self.frames,
            "baseUriDomains": self.base_uris,
        }
        said: dict[str, Any] = {}
        if policy := {name: list(one) for name, one in csp.items() if one}:
            said["csp"] = policy
        if self.allow:
            said["permissions"] = {FEATURES[one]: {} for one in self.allow}
        if self.domain:
            said["domain"] = self.domain
        if self.border is not None:
            said["prefersBorder"] = self.border
        return {"ui": said} if said else {}


def _check_uri(uri: Any) -> None:
    is_one = isinstance(uri, str) and (not uri or uri.startswith(SCHEME))
    _require(is_one, f"uri={uri!r}; write 'ui://shop/order', or leave it out")
    if uri:
        try:
            check_uri(uri)
        except ValueError as exc:
            raise ImproperlyConfigured(f"ui: {exc}.") from None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        raise ImproperlyConfigured(f"ui: {otherwise}.")
