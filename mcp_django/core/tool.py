"""Tools: functions that a model may call, and the ``UI`` that a host shows for their results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal, Protocol, get_args

from django.core.exceptions import ImproperlyConfigured

from mcp_django.core.component import Component
from mcp_django.protocol.headers import HeaderParameter, header_parameters
from mcp_django.protocol.uritemplate import check_uri
from mcp_django.schema.arguments import ArgumentSource
from mcp_django.schema.signature import OutputAdapter

# TOOL-12: the specification's own alphabet and length.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
Approval = Literal["", "caller", "staff"]
TaskSupport = Literal["", "optional", "required"]
TaskAsking = Literal["before", "during"]


class DryRun(Protocol):
    """How a tool is called so that it changes nothing, in terms of its read arguments."""

    def is_one(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these changes nothing."""

    def of(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of the same call that changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Component):
    """A tool. The four hints are published only when the author set them (TOOL-16).

    With ``approval`` each call waits for a person: the ``"caller"``, or one of the ``"staff"``. A
    ``dry_run`` needs none, and shows that person what the call would do. Its ``ui`` is what a host
    with MCP Apps shows its results in.

    With ``task`` a call may (``"optional"``) or has to (``"required"``) go on after its request,
    for ``task_ttl`` seconds at most. It asks its questions ``"before"`` the task begins, which is
    at ``ctx.task.begin()``, or ``"during"`` it. With ``handle`` clients without tasks get a handle
    at once, for the tool ``get_result``; so what it returns has no published schema.
    """

    kind: ClassVar[str] = "tool"

    arguments: ArgumentSource
    output: OutputAdapter | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    mirrored: tuple[HeaderParameter, ...] = ()
    approval: Approval = ""
    dry_run: DryRun | None = None
    task: TaskSupport = ""
    ask: TaskAsking = "during"
    handle: bool = False
    task_ttl: float | None = None
    ui: UI | None = None

    def __post_init__(self) -> None:
        super(Tool, self).__post_init__()
        if not NAME.fullmatch(self.name):
            raise ImproperlyConfigured(
                f"{self.name!r} is no tool name: use 1 to 128 of A-Z a-z 0-9 _ - . "
                "(pass name=… to the decorator)."
            )
        for alias in self.aliases:
            self.require(
                bool(NAME.fullmatch(alias)),
                f"aliases has {alias!r}, which is no tool name: use 1 to 128 of A-Z a-z 0-9 _ - .",
            )
        for hint, value in self.hints.items():
            self.require(isinstance(value, bool), f"{hint} is {value!r}; write True or False.")
        self.require(
            not (self.read_only and self.destructive),
            "read_only and destructive exclude each other; keep one.",
        )
        self.require(
            self.approval in get_args(Approval),
            f"approval is {self.approval!r}; write 'caller' or 'staff'.",
        )
        self._check_task()
        try:
            mirrored = header_parameters(self.arguments.json_schema)
        except ValueError as exc:
            raise ImproperlyConfigured(f"{self}: {exc}") from None
        object.__setattr__(self, "mirrored", mirrored)

    def _check_task(self) -> None:
        for option, value, kinds in (
            ("task", self.task, TaskSupport),
            ("ask", self.ask, TaskAsking),
        ):
            words = [repr(one) for one in get_args(kinds) if one]
            self.require(
                value in get_args(kinds), f"{option} is {value!r}; write {' or '.join(words)}."
            )
        self.require(
            isinstance(self.handle, bool), f"handle is {self.handle!r}; write True or False."
        )
        self.require(
            bool(self.task) or (self.ask == "during" and not self.handle and self.task_ttl is None),
            "ask, handle and task_ttl are for tools that run as tasks; add task='optional'.",
        )
        self.require(
            self.task_ttl is None or self.task_ttl > 0,
            f"task_ttl={self.task_ttl} leaves no time; give seconds, or leave it out.",
        )
        self.require(
            self.ask != "before" or self.function.context_parameter is not None,
            "ask='before' needs a parameter ctx: Context, for ctx.task.begin().",
        )

    @property
    def hints(self) -> dict[str, bool]:
        """The annotations of the specification that the author set."""
        hints = {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }
        return {name: value for name, value in hints.items() if value is not None}


# MCP Apps: the ``UI`` of a tool -------------------------------------------------------------------

# MCP Apps (SEP-1865, 2026-01-26), "Resource Discovery" and "UI Resource Format". What a ``UI``
# does not declare the host's sandbox has to refuse.

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
