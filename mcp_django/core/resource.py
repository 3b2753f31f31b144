"""Resources and templates: what a client can read by URI, skills and app pages included."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias
from urllib.parse import urljoin, urlsplit

from django.conf import settings
from django.contrib.auth.context_processors import PermWrapper
from django.core.exceptions import ImproperlyConfigured
from django.template.loader import get_template

from mcp_django.conf import get_settings
from mcp_django.core.component import Component, inspect_function
from mcp_django.core.context import Context
from mcp_django.core.tool import MIME_TYPE, UI, Tool, address
from mcp_django.protocol.content import Annotations, ResourceContents
from mcp_django.protocol.uritemplate import URITemplate, check_uri
from mcp_django.schema.arguments import ArgumentSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableComponent(Component):
    """What resources and templates share.

    ``cache_ttl`` and ``cache_public`` become the cache hints of 2026-07-28 (CCH-1); ``subscribe``
    says whether a client may ask to hear of changes.
    """

    mime_type: str | None = None
    annotations: Annotations | None = None
    subscribe: bool = True
    cache_ttl: timedelta = timedelta(0)
    cache_public: bool = False

    def __post_init__(self) -> None:
        super(ReadableComponent, self).__post_init__()
        self.require(
            isinstance(self.cache_ttl, timedelta),
            f"cache_ttl={self.cache_ttl!r}; write timedelta(seconds=…).",
        )
        self.require(self.cache_ttl >= timedelta(0), f"cache_ttl={self.cache_ttl!r} is negative.")
        self.require(
            self.annotations is None or isinstance(self.annotations, Annotations),
            f"annotations={self.annotations!r}; write Annotations(…).",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(ReadableComponent):
    """One resource with a fixed URI."""

    kind: ClassVar[str] = "resource"

    uri: str
    size: int | None = None

    def __post_init__(self) -> None:
        super(Resource, self).__post_init__()
        for uri in (self.uri, *self.aliases):
            try:
                check_uri(uri)
            except ValueError as exc:
                raise ImproperlyConfigured(f"{self}: {exc}") from None
        self.require(
            self.size is None or self.size >= 0, f"size={self.size}; give the number of bytes."
        )

    @property
    def key(self) -> str:
        """The URI."""
        return self.uri


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One resource of a template's family, as ``resources/list`` shows it."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPage:
    """Some entries, and the position of the last one that was looked at.

    ``after`` is ``None`` when nothing is left. It is JSON that goes into a cursor, which is signed
    and not encrypted: only what the caller may see belongs there. A page may have fewer entries
    than were asked for, and still not be the last.
    """

    entries: Sequence[Entry]
    after: list[Any] | None


ListEntries: TypeAlias = Callable[[Context, list[Any] | None, int], EntryPage]
"""Gives at most so many entries behind a position, or from the beginning for ``None``.

It runs in a thread and may use the database. A position that it cannot have given is
``InvalidParams``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTemplate(ReadableComponent):
    """A family of resources; the template's variables are the function's parameters.

    ``entries`` lists those that the caller may read; without it only the template is listed.
    """

    kind: ClassVar[str] = "resource template"

    template: URITemplate
    arguments: ArgumentSource
    entries: ListEntries | None = None
    former: tuple[URITemplate, ...] = field(init=False, repr=False, compare=False, default=())
    """The ``aliases`` as templates."""

    def __post_init__(self) -> None:
        super(ResourceTemplate, self).__post_init__()
        object.__setattr__(self, "former", tuple(map(self._former, self.aliases)))

    def _former(self, alias: str) -> URITemplate:
        try:
            template = URITemplate(alias, is_lookup=self.template.is_lookup)
        except ValueError as exc:
            raise ImproperlyConfigured(f"{self}: aliases: {exc}") from None
        self.require(
            set(template.variables) == set(self.template.variables),
            f"aliases has {alias!r}; a former address has the same variables, "
            f"{', '.join(self.template.variables)}.",
        )
        return template

    @property
    def key(self) -> str:
        """The template as it was written."""
        return self.template.template


# Skills -------------------------------------------------------------------------------------------

# Folders of files with instructions for a model, each file of them a resource. Agent Skills
# (agentskills.io) says what a skill is, SEP-2640 how a server offers it. Access to a file is
# decided as for any resource; the entry of a skill lists the files its caller sees.

SKILL_MD = "SKILL.md"
SCHEME = "skill://"
# What every host has to be able to load (SEP-2640, "Limits").
MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
RESERVED = "io.modelcontextprotocol/"
"""The prefix of keys in ``metadata`` that extensions of the protocol keep for themselves."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def is_name(name: str) -> bool:
    """Whether a skill, or a folder of skills, can be called like this."""
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile(Resource):
    """One file of a skill: an ordinary resource, with what the entry of its skill says of it.

    ``frontmatter`` is that of a ``SKILL.md``, and ``None`` for every other file. ``digest`` is of
    the file's raw bytes.
    """

    digest: str
    frontmatter: Mapping[str, Any] | None = field(default=None, repr=False)


def digest_of(content: bytes) -> str:
    """The digest of a file as the entry of a skill has it."""
    return f"sha256:{sha256(content).hexdigest()}"


def parents(uri: str) -> Iterator[str]:
    """The directories that a file or directory lies in, the innermost first."""
    scheme, separator, path = uri.partition("://")
    while "/" in path:
        path = path.rpartition("/")[0]
        yield f"{scheme}{separator}{path}"


Directory: TypeAlias = Mapping[str, SkillFile | None]
"""The direct children of a directory by URI; ``None`` stands for another directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skills:
    """The skills among some resources, and the directories that they are in."""

    files: Mapping[str, tuple[SkillFile, ...]]
    """All files of each skill by the URI of its ``SKILL.md``, nested skills included."""
    entries: Mapping[str, SkillFile]
    """The ``SKILL.md`` of each skill by its URI."""
    directories: Mapping[str, Directory]

    def __bool__(self) -> bool:
        return bool(self.entries)


_NO_SKILLS = Skills(
    files=MappingProxyType({}), entries=MappingProxyType({}), directories=MappingProxyType({})
)


def skills_among(resources: Iterable[Resource]) -> Skills:
    """What there is of skills among these resources."""
    found = sorted(
        (one for one in resources if isinstance(one, SkillFile)), key=lambda one: one.uri
    )
    if not found:
        return _NO_SKILLS
    entries = {one.uri: one for one in found if one.frontmatter is not None}
    files: dict[str, list[SkillFile]] = {uri: [] for uri in entries}
    directories: dict[str, dict[str, SkillFile | None]] = {}
    for one in found:
        child: str = one.uri
        for parent in parents(one.uri):
            directories.setdefault(parent, {})[child] = one if child == one.uri else None
            if (holder := files.get(f"{parent}/{SKILL_MD}")) is not None:
                holder.append(one)
            child = parent
    return Skills(
        files={uri: tuple(each) for uri, each in files.items()},
        entries=entries,
        directories=directories,
    )


# Pages of MCP Apps --------------------------------------------------------------------------------

logger = logging.getLogger("mcp_django")


@dataclass(frozen=True, slots=True, kw_only=True)
class UIResource(Resource):
    """The page of a tool's ``UI``: a Django template, rendered for the user who reads it.

    A host may fetch it long before the tool is called and keep it, so it holds no data of a call:
    those reach it over the bridge (MCP Apps, SEP-1865, 2026-01-26, "UI Resource Format"). Who may
    not see its tool may not read it.
    """

    tool: str
    """The name of the tool that declares it."""
    ui: UI

    @property
    def is_of_any_host(self) -> bool:
        """Whether whoever asks decides where the page loads from, so that it is for him alone."""
        return not get_settings().base_url and "*" in settings.ALLOWED_HOSTS


def resource_of(tool: Tool, server: str) -> UIResource | None:
    """The page that comes with a tool of this server, if it declares one.

    An address that is made of the tool's name has former ones as the tool has former names.
    """
    ui = tool.ui
    if ui is None or not ui.template:
        return None
    is_made_of_name = ui.uri == address(server, tool.name)
    return UIResource(
        name=tool.name,
        function=inspect_function(_page_function(ui, tool)),
        title=tool.title,
        description=f"The view of the tool {tool.name}.",
        meta=ui.of_view(),
        permission=tool.permission,
        scopes=tool.scopes,
        read_only=True,
        mime_type=MIME_TYPE,
        subscribe=False,
        cache_ttl=ui.cache_ttl,
        cache_public=ui.cache_public,
        uri=ui.uri,
        aliases=tuple(address(server, one) for one in tool.aliases) if is_made_of_name else (),
        tool=tool.name,
        ui=ui,
    )


def _page_function(ui: UI, tool: Tool) -> Any:
    """The function behind the page, which tells where it comes from as its tool does."""

    def render(ctx: Context) -> ResourceContents:
        return _page(ui, tool.name, ctx)

    render.__name__ = render.__qualname__ = tool.function.name
    render.__module__ = tool.callable.__module__
    return render


def _page(ui: UI, tool: str, ctx: Context) -> ResourceContents:
    """The page, with what it may load from this site.

    The template has ``tool`` (its name), ``server``, and ``user`` and ``perms`` of the caller;
    where there is a request, also what the context processors of the site add.

    Raises:
        TemplateDoesNotExist: a system check says so before.
    """
    # Its own, since those of the request may be of nobody: a bearer signs in to no site.
    values = {
        "tool": tool,
        "server": ctx.server,
        "user": ctx.user,
        "perms": PermWrapper(ctx.user),
    }
    request = ctx.request
    html = str(get_template(ui.template).render(values, request))
    base = get_settings().base_url or ("" if request is None else request.build_absolute_uri("/"))
    html, origins = _with_addresses(html, base)
    return ResourceContents(html, mime_type=MIME_TYPE, meta=ui.of_view(origins=origins))


def _with_addresses(html: str, base: str) -> tuple[str, tuple[str, ...]]:
    """A page whose static and media files have whole addresses, and the origins of those.

    It is shown elsewhere, where ``/static/`` is another site's or nobody's. Without a ``base`` it
    is left as it is.
    """
    origins: dict[str, None] = {}
    for prefix in _prefixes():
        parts = urlsplit(prefix)
        if parts.netloc:
            if prefix in html:
                origins[_origin(parts.scheme or "https", parts.netloc)] = None
            continue
        # Where an address may begin: within quotes, in url(), in an attribute without quotes.
        found = re.compile(rf"""(?<=["'(=]){re.escape(prefix)}""")
        if not found.search(html):
            continue
        if not base:
            logger.warning(
                "A view loads from %s, which has no whole address here: set BASE_URL of "
                "MCP_DJANGO.",
                prefix,
            )
            continue
        html = found.sub(partial(_whole, urljoin(base, prefix)), html)
        own = urlsplit(base)
        origins[_origin(own.scheme, own.netloc)] = None
    return html, tuple(origins)


def _whole(address: str, match: re.Match[str]) -> str:
    return address


def _origin(scheme: str, host: str) -> str:
    return f"{scheme}://{host}"


def _prefixes() -> tuple[str, ...]:
    """Where the site keeps files; a root is none, since every path begins with it."""
    places = (settings.STATIC_URL, settings.MEDIA_URL)
    return tuple(dict.fromkeys(str(one) for one in places if one and str(one) != "/"))
