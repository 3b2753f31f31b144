"""``Tool``: a function that a model can call; and ``UI``: the MCP App that shows its results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal, Protocol, get_args

from django.core.exceptions import ImproperlyConfigured

from mcp_django.components.component import Component
from mcp_django.protocol.headers import HeaderParameter, header_parameters
from mcp_django.protocol.uritemplate import check_uri, lower_scheme
from mcp_django.schema.arguments import ArgumentSource
from mcp_django.schema.deferred import DeferredArguments
from mcp_django.schema.output import OutputAdapter

# The characters and the length that the specification recommends ("Tools", "Tool Names").
TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
ApprovalMode = Literal["", "caller", "staff"]
TaskSupport = Literal["", "optional", "required"]
TaskAsking = Literal["before", "during"]


class DryRun(Protocol):
    """How to call a tool so that it changes nothing, in terms of its validated arguments."""

    def is_dry_run(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call with these arguments changes nothing."""

    def to_dry_run(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of the same call as a dry run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Component):
    """A tool. The four annotation hints are published only if they are set.

    With ``approval`` each call needs an approval: by the ``"caller"``, or by a user of the
    ``"staff"``. A ``dry_run`` needs no approval; its result is shown to the approver as a preview.
    ``ui`` is the MCP App in which a host shows the results.

    With ``task`` a call can (``"optional"``) or must (``"required"``) run as a task, for at most
    ``task_ttl`` seconds. With ``ask`` it sends client requests ``"before"`` the task begins (at
    ``ctx.task.begin()``) or ``"during"`` it. With ``polling_fallback`` clients without support for
    tasks immediately get a handle, for polling with the tool ``get_result``; the output schema is
    then not published.
    """

    kind: ClassVar[str] = "tool"

    arguments: ArgumentSource
    output: OutputAdapter | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    header_parameters: tuple[HeaderParameter, ...] = ()
    approval: ApprovalMode = ""
    dry_run: DryRun | None = None
    task: TaskSupport = ""
    ask: TaskAsking = "during"
    polling_fallback: bool = False
    task_ttl: float | None = None
    ui: UI | None = None

    def __post_init__(self) -> None:
        super(Tool, self).__post_init__()
        if not TOOL_NAME.fullmatch(self.name):
            raise ImproperlyConfigured(
                f"{self.name!r} is not a valid tool name; write 1 to 128 of the characters "
                "A-Z a-z 0-9 _ - . (pass a name to the decorator)."
            )
        for alias in self.aliases:
            self.require(
                bool(TOOL_NAME.fullmatch(alias)),
                f"aliases contains {alias!r}, which is not a valid tool name; write 1 to 128 of "
                "the characters A-Z a-z 0-9 _ - .",
            )
        for hint, value in self.hints.items():
            self.require(isinstance(value, bool), f"{hint} is {value!r}; write True or False.")
        self.require(
            not (self.read_only and self.destructive),
            "read_only and destructive are both set; keep one.",
        )
        self.require(
            self.approval in get_args(ApprovalMode),
            f"approval is {self.approval!r}; write 'caller' or 'staff'.",
        )
        self._check_task()
        if isinstance(self.arguments, DeferredArguments):
            # Forms and serializers have no headers.
            return
        try:
            mirrored = header_parameters(self.arguments.json_schema)
        except ValueError as exc:
            raise ImproperlyConfigured(f"{self}: {exc}") from None
        object.__setattr__(self, "header_parameters", mirrored)

    def _check_task(self) -> None:
        for option, value, kinds in (
            ("task", self.task, TaskSupport),
            ("ask", self.ask, TaskAsking),
        ):
            words = [repr(choice) for choice in get_args(kinds) if choice]
            self.require(
                value in get_args(kinds), f"{option} is {value!r}; write {' or '.join(words)}."
            )
        self.require(
            isinstance(self.polling_fallback, bool),
            f"polling_fallback is {self.polling_fallback!r}; write True or False.",
        )
        self.require(
            bool(self.task)
            or (self.ask == "during" and not self.polling_fallback and self.task_ttl is None),
            "ask, polling_fallback and task_ttl need a tool that can run as a task; add "
            "task='optional'.",
        )
        self.require(
            self.task_ttl is None or self.task_ttl > 0,
            f"task_ttl is {self.task_ttl}; write a positive number of seconds, or leave it out.",
        )
        self.require(
            self.ask != "before" or self.function.context_parameter is not None,
            "ask='before' needs a parameter ctx: Context, for ctx.task.begin().",
        )

    @property
    def hints(self) -> dict[str, bool]:
        """The annotation hints that are set, by the names of the specification."""
        hints = {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }
        return {name: value for name, value in hints.items() if value is not None}

    @property
    def client_changes(self) -> list[str]:
        """What was changed in the published schemas so that all known clients accept them."""
        sources = {"input": self.arguments, "output": self.output}
        return [
            f"{direction}: {change}"
            for direction, source in sources.items()
            for change in getattr(getattr(source, "json_schema", None), "changes", ())
        ]

    def problem_for(self, principal: Any) -> str:
        """Return why the tool cannot be described to a caller; empty if it can."""
        return str(getattr(self.arguments_for(principal), "problem", ""))

    def arguments_for(self, principal: Any) -> ArgumentSource:
        """Return the arguments that a caller may send; with ``None``, those of all callers.

        They differ between callers if the argument source has a method ``for_caller``.
        """
        for_caller = getattr(self.arguments, "for_caller", None)
        if for_caller is None or principal is None:
            return self.arguments
        arguments: ArgumentSource = for_caller(principal)
        return arguments


# MCP Apps: the ``UI`` of a tool -------------------------------------------------------------------

# MCP Apps (SEP-1865, 2026-01-26), "Resource Discovery" and "UI Resource Format". The host's sandbox
# must block everything that a ``UI`` does not declare.

UI_SCHEME = "ui://"
APP_MIME_TYPE = "text/html;profile=mcp-app"
LEGACY_RESOURCE_URI_KEY = "ui/resourceUri"
"""The key from which hosts before 2026 read the page's URI; deprecated by SEP-1865."""

Audience = Literal["model", "app"]
Feature = Literal["camera", "microphone", "geolocation", "clipboard_write"]
FEATURES: dict[str, str] = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboard_write": "clipboardWrite",
}
# The options of a ``UI`` without a template: it uses the app page of another tool, or none.
OPTIONS_WITHOUT_TEMPLATE = ("uri", "visibility")
# Must not contain characters that end a directive of the content security policy.
ORIGIN = re.compile(r"(?:https?|wss?)://(?:\*\.)?(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?")
# A host name; each host (MCP client) documents which names it accepts.
DOMAIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


def default_app_uri(server: str, tool: str) -> str:
    """Return the default URI of a tool's app page."""
    return f"{UI_SCHEME}{server}/{tool}"


@dataclass(frozen=True, slots=True)
class UI:
    """The MCP App of a tool: a Django template, and its permissions in the host's sandbox.

    ``uri`` is the ``ui://`` URI of the page, by default derived from the names of server and tool;
    without a ``template`` it is the URI of a page that another component of the server declares.
    ``visibility`` is who may call the tool: ``"model"``, ``"app"`` or both, the default; hosts
    enforce it. ``connect``, ``resources``, ``frames`` and ``base_uris`` are the origins
    (``"https://tiles.example.com"``) that the page may send requests to, load images, scripts,
    styles and fonts from, show in frames, and use in ``<base>``; the site's own origin is added if
    the page uses its static or media files. ``allow`` requests ``"camera"``, ``"microphone"``,
    ``"geolocation"`` and ``"clipboard_write"``. ``border`` requests a border (``None``: the host
    decides). ``domain`` requests a dedicated origin, in the form that the host documents.
    ``cache_ttl`` is how long the page may be cached, ``cache_public`` whether for all callers.

    Raises:
        ImproperlyConfigured: an option is invalid; the message says what to write.
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
        _require(_is_text(self.template), f"{self.template!r} is not the name of a template")
        if isinstance(self.uri, str):
            object.__setattr__(self, "uri", lower_scheme(self.uri))
        uri: Any = self.uri
        _require(
            isinstance(uri, str) and (not uri or uri.startswith(UI_SCHEME)),
            f"uri is {uri!r}; write 'ui://shop/order', or leave it out",
        )
        if uri:
            try:
                check_uri(uri)
            except ValueError as exc:
                raise ImproperlyConfigured(f"ui: {exc}.") from None
        self._normalize_choices("visibility", get_args(Audience))
        self._normalize_choices("allow", FEATURES)
        for option in ("connect", "resources", "frames", "base_uris"):
            for origin in self._normalize(option):
                _require(
                    isinstance(origin, str) and ORIGIN.fullmatch(origin),
                    f"{option} contains {origin!r}; write origins without a path: "
                    "'https://cdn.example.com', 'https://*.example.com'",
                )
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
            self._check_without_template()

    def _check_without_template(self) -> None:
        """Reject options that need a template, since only the page can declare them."""
        names = [
            option.name for option in fields(self) if getattr(self, option.name) != option.default
        ]
        _require(
            bool(names),
            "UI() has no options; write UI('app/view.html'), or UI(visibility=['app']) for a tool "
            "that only MCP Apps call",
        )
        lost = [name for name in names if name not in OPTIONS_WITHOUT_TEMPLATE]
        _require(
            not lost,
            f"{', '.join(lost)}: these options need a template; set them where the template is "
            "declared",
        )

    def _normalize_choices(self, option: str, choices: Iterable[str]) -> None:
        values = self._normalize(option)
        wrong = [value for value in values if value not in choices]
        _require(
            not wrong,
            f"{option} contains {wrong}; write any of {', '.join(map(repr, choices))}",
        )

    def _normalize(self, option: str) -> tuple[Any, ...]:
        value = getattr(self, option)
        is_list = isinstance(value, Iterable) and not isinstance(value, str)
        _require(is_list, f"{option} is not a list; write {option}=[{value!r}]")
        values = tuple(value)
        object.__setattr__(self, option, values)
        return values

    @classmethod
    def from_option(cls, declared: UI | str | None) -> UI | None:
        """Return the ``UI`` of a decorator's option: a template's name, a ``UI`` or ``None``.

        Raises:
            ImproperlyConfigured: the option is something else.
        """
        if declared is None or isinstance(declared, UI):
            return declared
        if declared and isinstance(declared, str):
            return cls(declared)
        raise ImproperlyConfigured(f"ui is {declared!r}; write 'app/view.html' or UI(…).")

    def with_default_uri(self, server: str, tool: str) -> UI:
        """Return a copy with the default URI, if there is a template and no URI is set."""
        if self.uri or not self.template:
            return self
        return replace(self, uri=default_app_uri(server, tool))

    def tool_meta(self, *, is_linked: bool = True) -> dict[str, Any]:
        """Return the ``_meta`` of the tool; the URI is left out unless ``is_linked``."""
        ui_meta: dict[str, Any] = {}
        if self.uri and is_linked:
            ui_meta["resourceUri"] = self.uri
        if self.visibility:
            ui_meta["visibility"] = list(self.visibility)
        meta: dict[str, Any] = {"ui": ui_meta} if ui_meta else {}
        if "resourceUri" in ui_meta:
            meta[LEGACY_RESOURCE_URI_KEY] = self.uri
        return meta

    def page_meta(self, *, origins: Iterable[str] = ()) -> dict[str, Any]:
        """Return the ``_meta`` of the page; ``origins`` are added to ``resources``."""
        csp = {
            "connectDomains": self.connect,
            "resourceDomains": tuple(dict.fromkeys((*self.resources, *origins))),
            "frameDomains": self.frames,
            "baseUriDomains": self.base_uris,
        }
        ui_meta: dict[str, Any] = {}
        if policy := {name: list(sources) for name, sources in csp.items() if sources}:
            ui_meta["csp"] = policy
        if self.allow:
            ui_meta["permissions"] = {FEATURES[feature]: {} for feature in self.allow}
        if self.domain:
            ui_meta["domain"] = self.domain
        if self.border is not None:
            ui_meta["prefersBorder"] = self.border
        return {"ui": ui_meta} if ui_meta else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _require(condition: object, message: str) -> None:
    if not condition:
        raise ImproperlyConfigured(f"ui: {message}.")
