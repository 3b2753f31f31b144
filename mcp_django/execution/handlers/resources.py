"""``resources/list``, ``resources/templates/list``, ``resources/read``, and skills (SEP-2640).

If templates list their resources, ``resources/list`` has sections: the fixed resources, then the
entries of each template. A cursor contains the section and the position in it. Entries come from
the site's database, so such a list is a call that runs in the same threads as other calls.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from django.core.exceptions import PermissionDenied

from mcp_django.auth.principal import Principal, missing
from mcp_django.core.component import Component, ComponentFunction
from mcp_django.core.context import Context
from mcp_django.core.resource import (
    Entry,
    ReadableComponent,
    Resource,
    ResourceTemplate,
    SkillFile,
    Skills,
    UIResource,
)
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    ElicitationDeclined,
    InvalidParams,
    MCPError,
    ResourceNotFound,
)
from mcp_django.execution import invoke, results
from mcp_django.execution.call import CURSORS, Incoming, Invocation, RoundParams
from mcp_django.execution.call_record import Entry as CallEntry
from mcp_django.execution.handlers.listing import ListParams, common, page, scope_of
from mcp_django.execution.interaction import Interaction
from mcp_django.execution.policy import Verdicts, admit, depends_on_caller, visible
from mcp_django.execution.quotas import spend
from mcp_django.protocol.content import ResourceContents
from mcp_django.protocol.cursors import decode_cursor, encode_cursor, paginate
from mcp_django.protocol.jsonrpc import encode, read_params
from mcp_django.protocol.uritemplate import check_uri
from mcp_django.schema.arguments import InvalidArguments

NOT_CACHEABLE = {"ttlMs": 0, "cacheScope": "private"}


class ReadParams(RoundParams, kw_only=True):
    """Parameters of ``resources/read``."""

    uri: str


def list_resources(incoming: Incoming) -> dict[str, Any] | Invocation:
    """Return the fixed resources that the caller may see, then those that templates list."""
    server = incoming.server
    listing = [one for one in server.offered.templates.values() if one.entries is not None]
    shown = [one for one in listing if are_shown(incoming.principal, one)]
    if shown:
        return _list_entries(incoming, shown, describe=describe_resource)
    return page(
        incoming,
        server.offered.resources.values(),
        member="resources",
        describe=describe_resource,
        # For other callers, templates list entries here.
        is_private=bool(listing),
    )


def list_templates(incoming: Incoming) -> dict[str, Any]:
    """Return the resource templates that the caller may see."""
    templates = incoming.server.offered.templates.values()
    return page(incoming, templates, member="resourceTemplates", describe=describe_template)


def describe_resource(resource: Resource) -> dict[str, Any]:
    """Return a resource in its richest wire shape."""
    described = {"uri": resource.uri, **_describe(resource)}
    if resource.size is not None:
        described["size"] = resource.size
    return described


def describe_template(template: ResourceTemplate) -> dict[str, Any]:
    """Return a resource template in its richest wire shape."""
    return {"uriTemplate": template.key, **_describe(template)}


def _describe(component: ReadableComponent) -> dict[str, Any]:
    described = common(component)
    if component.mime_type:
        described["mimeType"] = component.mime_type
    if component.annotations is not None:
        described["annotations"] = component.annotations.to_wire()
    return described


def read_resource(incoming: Incoming) -> Invocation:
    """Authorize the read of a resource; its function runs later."""
    params = read_params(incoming.request.params, ReadParams)
    reading = admit_reading(incoming, params.uri, entry=incoming.entry)
    interaction = Interaction(incoming, reading.component, encode(params.uri), params)
    spend(incoming, reading.component, interaction)
    reading = replace(reading, interaction=interaction)
    return _not_cacheable(reading) if params.is_retry else reading


def _not_cacheable(reading: Invocation) -> Invocation:
    """Mark a result as not cacheable, since it depends on an answer of the user."""
    return replace(reading, conclude=lambda value: {**reading.conclude(value), **NOT_CACHEABLE})


def admit_reading(incoming: Incoming, uri: str, *, entry: CallEntry | None = None) -> Invocation:
    """Return the call that reads a URI; without an ``entry`` it is part of another call.

    Raises:
        ResourceNotFound: no resource has the URI, or the caller may not see it; the error is the
            same.
    """
    entry = entry or CallEntry()
    entry.wants(uri)
    try:
        check_uri(uri)
    except ValueError:
        raise _not_found(uri) from None
    offered = incoming.server.offered
    component, variables = offered.find_resource(uri) or (None, {})
    if component is not None:
        entry.found(component, uri=uri)
    is_admitted = admit(incoming.principal, component, among=offered.readable(), entry=entry)
    if component is None or not is_admitted:
        raise _not_found(uri)
    entry.admitted(variables)
    return Invocation(
        incoming=incoming,
        component=component,
        arguments=_arguments(component, variables, uri, entry=entry),
        entry=entry,
        conclude=partial(results.resource_result, component, uri, _hints(incoming, component)),
        excuse=partial(results.resource_failure, component, uri),
    )


def is_readable(incoming: Incoming, uri: str) -> bool:
    """Return whether the caller could read a URI now.

    For a template, only its function knows which rows the caller may read, so it runs; a fixed
    resource has no rows to check. Uses the database.
    """
    try:
        invocation = admit_reading(incoming, uri)
        if isinstance(invocation.component, ResourceTemplate):
            invoke.run(replace(invocation, conclude=lambda value: {}))
    except (MCPError, AccessRefused):
        return False
    return True


def read_contents(
    incoming: Incoming, uri: str, interaction: Interaction | None
) -> list[ResourceContents]:
    """Return the contents of a resource, for a component that reads it on behalf of its caller.

    Raises:
        InputRequired: the resource asks the client something, so the component runs again too.
        ElicitationDeclined: the user declined to answer; the component may handle this.
    """
    try:
        invocation = admit_reading(incoming, uri)
    except AuthenticationRequired:
        # Another error would tell an anonymous caller that the resource exists.
        raise _not_found(uri) from None
    component = invocation.component
    assert isinstance(component, ReadableComponent)
    found: list[ResourceContents] = []

    def keep(value: Any) -> dict[str, Any]:
        found.extend(results.resource_contents(component, value))
        return {}

    def excuse(exc: Exception) -> dict[str, Any]:
        if isinstance(exc, ElicitationDeclined):
            raise exc
        return invocation.excuse(exc)

    invoke.perform(replace(invocation, conclude=keep, excuse=excuse, interaction=interaction))
    return found


def _arguments(
    component: ReadableComponent, variables: dict[str, str], uri: str, *, entry: CallEntry
) -> dict[str, Any]:
    if not isinstance(component, ResourceTemplate):
        return {}
    try:
        return component.arguments.parse(json.dumps(variables).encode())
    except InvalidArguments as exc:
        entry.wrong(exc.problems)
        # For example "orders/abc" where a number is expected: no such resource exists.
        raise _not_found(uri) from None


def _hints(incoming: Incoming, component: ReadableComponent) -> dict[str, Any]:
    public = component.cache_public and not depends_on_caller(incoming.server, component)
    if isinstance(component, UIResource) and component.is_of_any_host:
        public = False
    return {
        "ttlMs": int(component.cache_ttl.total_seconds() * 1000),
        "cacheScope": "public" if public else "private",
    }


def _not_found(uri: str) -> ResourceNotFound:
    return ResourceNotFound(
        "Resource not found; see resources/list and resources/templates/list.", data={"uri": uri}
    )


# Lists with the entries of templates --------------------------------------------------------------

FIXED = ""

Describe = Callable[[Resource], dict[str, Any]]
Position = list[Any] | None
Part = tuple[list[dict[str, Any]], Position]


def are_shown(principal: Principal, template: ResourceTemplate) -> bool:
    """Return whether the caller may list a template's entries, which needs its scopes too."""
    return visible(principal, template) and not missing(principal.scopes, template.scopes)


def _list_entries(
    incoming: Incoming, templates: Sequence[ResourceTemplate], *, describe: Describe
) -> Invocation:
    """Prepare the call that makes one page.

    Raises:
        InvalidParams: the cursor is not one of this list.
    """
    book = Book(incoming, templates, describe)
    section, after = book.opened_at(read_params(incoming.request.params, ListParams).cursor)
    return Invocation(
        incoming=incoming,
        component=LISTING,
        arguments={"book": book, "section": section, "after": after},
        conclude=book.result,
        excuse=partial(results.component_failure, LISTING),
        entry=incoming.entry,
    )


class Book:
    """The list of resources and template entries, as one caller may see it."""

    def __init__(
        self, incoming: Incoming, templates: Sequence[ResourceTemplate], describe: Describe
    ) -> None:
        self._incoming = incoming
        self._templates = {one.key: one for one in templates}
        self._describe = describe
        self.sections = [FIXED, *sorted(self._templates)]
        self.size = incoming.server.page_size

    def opened_at(self, cursor: str | None) -> tuple[str, Position]:
        """Return the section, and the position in it, after which the page begins."""
        if cursor is None:
            return FIXED, None
        key = decode_cursor(cursor, scope=scope_of(self._incoming), signer=CURSORS)
        if len(key) == 2 and key[0] in self.sections:
            section, after = key
            if after is None or isinstance(after, list):
                return section, after
        # From another deployment, or of a template that is hidden by now.
        raise InvalidParams("The cursor is not valid here; start again without one")

    def part(self, ctx: Context, section: str, after: Position, limit: int) -> Part:
        """Return at most ``limit`` members of a section, and the position to continue after."""
        if section == FIXED:
            return self._fixed(after, limit)
        template = self._templates[section]
        assert template.entries is not None
        try:
            page = template.entries(ctx, after, limit)
        except (*results.MISSING, PermissionDenied):
            # The caller may not see these rows, so the section is empty.
            return [], None
        return [_describe_entry(one) for one in page.entries], page.after

    def _fixed(self, after: Position, limit: int) -> Part:
        principal = self._incoming.principal
        resources = self._incoming.server.offered.resources.values()
        shown = [one for one in resources if visible(principal, one)]
        shown.sort(key=lambda one: one.key)
        start = bisect_right(shown, after[0], key=lambda one: one.key) if after else 0
        kept = shown[start : start + limit]
        more = start + limit < len(shown)
        return [self._describe(one) for one in kept], [kept[-1].key] if more else None

    def result(self, page: Part) -> dict[str, Any]:
        """Return the result; it must not be cached, since entries differ between callers."""
        found, place = page
        result: dict[str, Any] = {"resources": found, **NOT_CACHEABLE}
        if place is not None:
            scope = scope_of(self._incoming)
            result["nextCursor"] = encode_cursor(place, scope=scope, signer=CURSORS)
        return result


def _describe_entry(entry: Entry) -> dict[str, Any]:
    """Return a template's entry in its richest wire shape."""
    optional: dict[str, Any] = {
        "title": entry.title,
        "description": entry.description,
        "mimeType": entry.mime_type,
        "annotations": entry.annotations.to_wire() if entry.annotations is not None else None,
    }
    described: dict[str, Any] = {"uri": entry.uri, "name": entry.name}
    described.update({name: value for name, value in optional.items() if value})
    return described if entry.size is None else {**described, "size": entry.size}


def _fill(ctx: Context, book: Book, section: str, after: Position) -> Part:
    """Return one page, filled from one section after another."""
    found: list[dict[str, Any]] = []
    for name in book.sections[book.sections.index(section) :]:
        if len(found) >= book.size:
            return found, [name, None]
        part, after = book.part(ctx, name, after, book.size - len(found))
        found.extend(part)
        if after is not None:
            return found, [name, after]
    return found, None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Component):
    """The component of a call that lists entries; it is never registered."""

    kind: ClassVar[str] = "list"


LISTING = Listing(
    name="resources/list",
    read_only=True,
    function=ComponentFunction(function=_fill, is_async=False, context_parameter="ctx"),
)


# The Skills extension -----------------------------------------------------------------------------

# SEP-2640: ``skills/list``, ``skills/get``, ``resources/directory/read``. The content of the
# files is read by ``resources/read`` and authorized there, as for every resource.

DIRECTORY = "inode/directory"


class GetParams(ListParams, kw_only=True):
    """Parameters of ``skills/get`` and ``resources/directory/read``."""

    uri: str


def list_skills(incoming: Incoming) -> dict[str, Any]:
    """Return the entries of the skills that the caller may see."""
    skills = incoming.server.offered.skills
    return page(
        incoming,
        skills.entries.values(),
        member="skills",
        describe=partial(_entry, skills, _Sight(incoming.principal)),
        # An entry lists only the files that the caller may see.
        is_private=_is_private(incoming, *(one for each in skills.files.values() for one in each)),
    )


def get_skill(incoming: Incoming) -> dict[str, Any]:
    """Return the entry of one skill.

    Raises:
        InvalidParams: no skill has this URI, or the caller may not see it.
    """
    params = read_params(incoming.request.params, GetParams)
    offered = incoming.server.offered
    skills = offered.skills
    skill = skills.entries.get(params.uri)
    is_admitted = admit(incoming.principal, skill, among=offered.resources.values())
    if skill is None or not is_admitted:
        raise InvalidParams(f"No skill is served at {params.uri[:200]!r}; see skills/list.")
    private = _is_private(incoming, *skills.files[skill.uri])
    return {
        "skill": _entry(skills, _Sight(incoming.principal), skill),
        "ttlMs": int(skill.cache_ttl.total_seconds() * 1000),
        "cacheScope": "public" if skill.cache_public and not private else "private",
    }


def _is_private(incoming: Incoming, *files: SkillFile) -> bool:
    return any(depends_on_caller(incoming.server, one) for one in files)


class _Sight:
    """Checks which skill files a caller may see; files with the same rules are checked once."""

    def __init__(self, principal: Principal) -> None:
        self._verdicts = Verdicts(principal)
        self._known: dict[tuple[int, tuple[str, ...]], bool] = {}

    def sees(self, file: SkillFile) -> bool:
        """Return whether the caller may see a file."""
        key = id(file.permission), file.scopes
        if key not in self._known:
            verdicts = self._verdicts
            self._known[key] = visible(verdicts.principal, file, verdicts=verdicts)
        return self._known[key]

    def misses(self, resources: Iterable[Resource]) -> None:
        """Check all permissions, so that unknown and hidden directories take the same time."""
        self._verdicts.ask_all(resources)


def _entry(skills: Skills, sight: _Sight, skill: SkillFile) -> dict[str, Any]:
    """Return the entry of a skill with the files that the caller may see."""
    return entry_of(skill, filter(sight.sees, skills.files[skill.uri]))


def entry_of(skill: SkillFile, files: Iterable[SkillFile]) -> dict[str, Any]:
    """Return the entry of a skill with these files."""
    return {
        "uri": skill.uri,
        "frontmatter": skill.frontmatter,
        "resources": [{"uri": one.uri, "digest": one.digest, "size": one.size} for one in files],
    }


def read_directory(incoming: Incoming) -> dict[str, Any]:
    """Return the direct children of a directory that the caller may see.

    Raises:
        InvalidParams: the directory does not exist, or the caller may see nothing in it.
    """
    params = read_params(incoming.request.params, GetParams)
    offered = incoming.server.offered
    skills = offered.skills
    sight = _Sight(incoming.principal)
    children = [
        (uri, one)
        for uri, one in skills.directories.get(params.uri, {}).items()
        if any(map(sight.sees, _files_at(skills, uri, one)))
    ]
    if not children:
        sight.misses(offered.resources.values())
        raise InvalidParams(
            f"{params.uri[:200]!r} is not a directory here; write it without a trailing slash."
        )
    entries, cursor = paginate(
        children,
        cursor=params.cursor,
        size=incoming.server.page_size,
        scope=f"{scope_of(incoming)}:{params.uri}",
        key=lambda child: child[0],
        signer=CURSORS,
    )
    result: dict[str, Any] = {"resources": [_child(uri, one) for uri, one in entries]}
    if cursor is not None:
        result["nextCursor"] = cursor
    return result


def _files_at(skills: Skills, uri: str, file: SkillFile | None) -> Iterator[SkillFile]:
    """Yield a file, or all files below a directory."""
    waiting = [(uri, file)]
    while waiting:
        uri, file = waiting.pop()
        if file is None:
            waiting += skills.directories[uri].items()
        else:
            yield file


def _child(uri: str, file: SkillFile | None) -> dict[str, Any]:
    if file is None:
        return {"uri": uri, "name": uri.rpartition("/")[2], "mimeType": DIRECTORY}
    return describe_resource(file)
