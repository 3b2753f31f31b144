"""Resources and resource templates, including the files of skills and the pages of MCP Apps."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias
from urllib.parse import urljoin, urlsplit

from django.conf import settings
from django.contrib.auth.context_processors import PermWrapper
from django.core.exceptions import ImproperlyConfigured
from django.template.loader import get_template

from mcp_django.components.component import Component, inspect_function
from mcp_django.components.context import Context
from mcp_django.components.tool import APP_MIME_TYPE, UI, Tool, default_app_uri
from mcp_django.conf import get_settings
from mcp_django.protocol.content import Annotations, ResourceContents
from mcp_django.protocol.uritemplate import URITemplate, check_uri, lower_scheme
from mcp_django.schema.arguments import ArgumentSource

READABLE_KINDS = ("resource", "resource template")
"""The kinds of components whose keys and aliases are URIs or URI templates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableComponent(Component):
    """The base class of resources and resource templates.

    ``cache_ttl`` and ``cache_public`` become the cache hints of 2026-07-28. ``subscribe`` is
    whether clients may subscribe to changes.
    """

    mime_type: str | None = None
    annotations: Annotations | None = None
    subscribe: bool = True
    cache_ttl: timedelta = timedelta(0)
    cache_public: bool = False

    def __post_init__(self) -> None:
        super(ReadableComponent, self).__post_init__()
        object.__setattr__(self, "aliases", tuple(map(lower_scheme, self.aliases)))
        self.require(
            isinstance(self.cache_ttl, timedelta),
            f"cache_ttl is {self.cache_ttl!r}; write timedelta(seconds=…).",
        )
        self.require(
            self.cache_ttl >= timedelta(0),
            f"cache_ttl is {self.cache_ttl!r}; write a timedelta that is not negative.",
        )
        self.require(
            self.annotations is None or isinstance(self.annotations, Annotations),
            f"annotations is {self.annotations!r}; write Annotations(…).",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(ReadableComponent):
    """A resource with a fixed URI, whose scheme is stored in lower case."""

    kind: ClassVar[str] = "resource"

    uri: str
    size: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", lower_scheme(self.uri))
        super(Resource, self).__post_init__()
        for uri in (self.uri, *self.aliases):
            try:
                check_uri(uri)
            except ValueError as exc:
                raise ImproperlyConfigured(f"{self}: {exc}") from None
        self.require(
            self.size is None or self.size >= 0,
            f"size is {self.size}; write the number of bytes.",
        )

    @property
    def key(self) -> str:
        """The URI."""
        return self.uri


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResource:
    """One resource of a template, as ``resources/list`` lists it."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResourcePage:
    """A page of entries, and the position of the last entry that was examined.

    ``after`` is ``None`` on the last page. It is a JSON value that becomes part of a cursor, which
    is signed but not encrypted, so it must contain only data that the caller may see. A page may
    have fewer entries than requested without being the last.
    """

    entries: Sequence[ListedResource]
    after: list[Any] | None


ListEntries: TypeAlias = Callable[[Context, list[Any] | None, int], ListedResourcePage]
"""Returns at most the given number of entries after a position (``None``: from the beginning).

It runs in a thread and may use the database. It raises ``InvalidParams`` for an invalid position.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTemplate(ReadableComponent):
    """A resource template; the variables of its URI are the function's parameters.

    ``entries`` lists the resources that the caller may read; without it only the template is
    listed.
    """

    kind: ClassVar[str] = "resource template"

    template: URITemplate
    arguments: ArgumentSource
    entries: ListEntries | None = None
    alias_templates: tuple[URITemplate, ...] = field(
        init=False, repr=False, compare=False, default=()
    )
    """The ``aliases``, as URI templates."""

    def __post_init__(self) -> None:
        super(ResourceTemplate, self).__post_init__()
        templates = []
        for alias in self.aliases:
            try:
                template = URITemplate(alias, is_lookup=self.template.is_lookup)
            except ValueError as exc:
                raise ImproperlyConfigured(f"{self}: aliases: {exc}") from None
            self.require(
                set(template.variables) == set(self.template.variables),
                f"aliases contains {alias!r}; an alias must have the same variables as the "
                f"template: {', '.join(self.template.variables)}.",
            )
            templates.append(template)
        object.__setattr__(self, "alias_templates", tuple(templates))

    @property
    def key(self) -> str:
        """The URI template."""
        return self.template.template


# Skills -------------------------------------------------------------------------------------------

# A skill is a folder of files with instructions for a model; each file is a resource. Agent Skills
# (agentskills.io) specifies skills, SEP-2640 how a server publishes them. Access to a file is
# checked as for any resource; the entry of a skill lists the files that the caller may see.

SKILL_MD = "SKILL.md"
SKILL_SCHEME = "skill://"
# The sizes that every host must support (SEP-2640, "Limits").
MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
RESERVED_PREFIX = "io.modelcontextprotocol/"
"""The prefix of keys in ``metadata`` that is reserved for extensions of the protocol."""

_SKILL_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def is_skill_name(name: str) -> bool:
    """Return whether a name is valid for a skill or a folder of skills."""
    return len(name) <= MAX_NAME and _SKILL_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile(Resource):
    """One file of a skill: a resource with the data that the entry of its skill needs.

    ``frontmatter`` is the front matter of a ``SKILL.md``, and ``None`` for other files. ``digest``
    is the digest of the file's raw bytes.
    """

    digest: str
    frontmatter: Mapping[str, Any] | None = field(default=None, repr=False)


def file_digest(content: bytes) -> str:
    """Return the digest of a file, in the format of a skill's entry."""
    return f"sha256:{sha256(content).hexdigest()}"


def parent_directories(uri: str) -> Iterator[str]:
    """Yield the URIs of the directories that contain a file or directory, the innermost first."""
    scheme, separator, path = uri.partition("://")
    while "/" in path:
        path = path.rpartition("/")[0]
        yield f"{scheme}{separator}{path}"


Directory: TypeAlias = Mapping[str, SkillFile | None]
"""The direct children of a directory by URI; a subdirectory has the value ``None``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skills:
    """The skills of a server, and their directories."""

    files: Mapping[str, tuple[SkillFile, ...]]
    """All files of each skill by the URI of its ``SKILL.md``, including nested skills."""
    entries: Mapping[str, SkillFile]
    """The ``SKILL.md`` of each skill by its URI."""
    directories: Mapping[str, Directory]

    def __bool__(self) -> bool:
        return bool(self.entries)


_NO_SKILLS = Skills(
    files=MappingProxyType({}), entries=MappingProxyType({}), directories=MappingProxyType({})
)


def find_skills(resources: Iterable[Resource]) -> Skills:
    """Return the skills that are among these resources."""
    all_files = sorted(
        (file for file in resources if isinstance(file, SkillFile)), key=lambda file: file.uri
    )
    if not all_files:
        return _NO_SKILLS
    entries = {file.uri: file for file in all_files if file.frontmatter is not None}
    files: dict[str, list[SkillFile]] = {uri: [] for uri in entries}
    directories: dict[str, dict[str, SkillFile | None]] = {}
    for file in all_files:
        child: str = file.uri
        for parent in parent_directories(file.uri):
            directories.setdefault(parent, {})[child] = file if child == file.uri else None
            if (holder := files.get(f"{parent}/{SKILL_MD}")) is not None:
                holder.append(file)
            child = parent
    return Skills(
        files={uri: tuple(skill_files) for uri, skill_files in files.items()},
        entries=entries,
        directories=directories,
    )


# Pages of MCP Apps --------------------------------------------------------------------------------

logger = logging.getLogger("mcp_django")


@dataclass(frozen=True, slots=True, kw_only=True)
class UIResource(Resource):
    """The page of an MCP App: the Django template of a tool's ``UI``, rendered for the caller.

    A host may fetch the page long before the tool is called and cache it, so it contains no data
    of a call: the host passes the data to the page later (MCP Apps, SEP-1865, 2026-01-26, "UI
    Resource Format"). A caller who may not see the tool may not read its page.
    """

    tool: str
    """The name of the tool that declares it."""
    ui: UI

    @property
    def depends_on_host(self) -> bool:
        """Whether URLs in the page depend on the ``Host`` header, so caches must be private."""
        return not get_settings().base_url and "*" in settings.ALLOWED_HOSTS


def build_app_page(tool: Tool, server: str) -> UIResource | None:
    """Return the app page of a tool of this server, ``None`` if the tool declares none.

    If the URI is derived from the tool's name, the aliases of the tool become aliases of the page.
    """
    ui = tool.ui
    if ui is None or not ui.template:
        return None

    def render(ctx: Context) -> ResourceContents:
        return _render_page(ui, tool.name, ctx)

    # The name and the module of the function are those of the tool's.
    render.__name__ = render.__qualname__ = tool.function.name
    render.__module__ = tool.callable.__module__
    is_made_of_name = ui.uri == default_app_uri(server, tool.name)
    return UIResource(
        name=tool.name,
        function=inspect_function(render),
        title=tool.title,
        description=f"The MCP App of the tool {tool.name}.",
        meta=ui.page_meta(),
        permission=tool.permission,
        scopes=tool.scopes,
        read_only=True,
        mime_type=APP_MIME_TYPE,
        subscribe=False,
        cache_ttl=ui.cache_ttl,
        cache_public=ui.cache_public,
        uri=ui.uri,
        aliases=tuple(default_app_uri(server, alias) for alias in tool.aliases)
        if is_made_of_name
        else (),
        tool=tool.name,
        ui=ui,
    )


def _render_page(ui: UI, tool: str, ctx: Context) -> ResourceContents:
    """Render the page and declare the origins of this site that it loads files from.

    The host shows the page at another origin, where ``/static/`` does not lead to this site, so the
    URLs of static and media files become absolute if the site's own URL is known.

    The template's context contains ``tool`` (its name), ``server``, and ``user`` and ``perms`` of
    the caller; with a request, also the variables of the site's context processors.

    Raises:
        TemplateDoesNotExist: the template is missing (also reported by a system check).
    """
    # Set explicitly: ``request.user`` is anonymous if the caller authenticated with a token.
    values = {
        "tool": tool,
        "server": ctx.server,
        "user": ctx.user,
        "perms": PermWrapper(ctx.user),
    }
    request = ctx.request
    html = str(get_template(ui.template).render(values, request))
    base = get_settings().base_url or ("" if request is None else request.build_absolute_uri("/"))
    origins: dict[str, None] = {}
    urls = (settings.STATIC_URL, settings.MEDIA_URL)
    # The prefix ``/`` is left out, because it fits every path.
    for prefix in dict.fromkeys(str(url) for url in urls if url and str(url) != "/"):
        parts = urlsplit(prefix)
        if parts.netloc:
            if prefix in html:
                origins[f"{parts.scheme or 'https'}://{parts.netloc}"] = None
            continue
        # Where a URL may begin: after a quote, in url(), or in an attribute without quotes.
        pattern = re.compile(rf"""(?<=["'(=]){re.escape(prefix)}""")
        if not pattern.search(html):
            continue
        if not base:
            logger.warning(
                "An MCP App loads files from %s, which cannot be made an absolute URL: set "
                "MCP_DJANGO['BASE_URL'].",
                prefix,
            )
            continue
        html = urljoin(base, prefix).join(pattern.split(html))
        base_parts = urlsplit(base)
        origins[f"{base_parts.scheme}://{base_parts.netloc}"] = None
    return ResourceContents(html, mime_type=APP_MIME_TYPE, meta=ui.page_meta(origins=origins))
