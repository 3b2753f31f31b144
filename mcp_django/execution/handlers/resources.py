"""``resources/list``, ``resources/templates/list``, ``resources/read``, and skills (SEP-2640).

If templates list their resources, ``resources/list`` has sections: the fixed resources, then the
entries of each template. A cursor contains the section and the position in it. Entries come from
the site's database, so such a list is a call that runs in the same threads as other calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, cast

from django.core.exceptions import PermissionDenied

from mcp_django.auth.principal import Principal, missing_scopes
from mcp_django.components.catalog import Catalog
from mcp_django.components.component import Component, ComponentFunction
from mcp_django.components.context import Context
from mcp_django.components.resource import (
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
from mcp_django.execution.call import Call, ComponentMethod, RetryParams, run_steps
from mcp_django.execution.call_record import CallRecord
from mcp_django.execution.handlers.listing import (
    ListParams,
    common_members,
    list_page,
    open_list,
    with_next_cursor,
)
from mcp_django.execution.interaction import Interaction
from mcp_django.execution.plan import plan_for
from mcp_django.execution.policy import PermissionCache, authorize, depends_on_caller, is_visible
from mcp_django.protocol.content import ResourceContents
from mcp_django.protocol.cursors import Position, invalid_cursor, items_after
from mcp_django.protocol.jsonrpc import encode, read_params
from mcp_django.protocol.uritemplate import check_uri, lower_scheme
from mcp_django.schema.arguments import InvalidArguments

NOT_CACHEABLE = {"ttlMs": 0, "cacheScope": "private"}


class ReadParams(RetryParams, kw_only=True):
    """Parameters of ``resources/read``."""

    uri: str


def list_resources(call: Call) -> dict[str, Any] | None:
    """Return the fixed resources that the caller may see, then those that templates list.

    If templates list any, prepare the call that builds one page.

    Raises:
        InvalidParams: the cursor is not valid for this list.
    """
    catalog = call.catalog
    assert catalog is not None
    listing = [template for template in catalog.templates.values() if template.entries is not None]
    visible = [template for template in listing if may_list_entries(call.principal, template)]
    if visible:
        book = ResourceListing(call, visible, describe_resource)
        section, after = book.start
        call.prepare(
            LIST_COMPONENT,
            {"book": book, "section": section, "after": after},
            to_result=book.result,
            to_error=partial(results.component_failure, LIST_COMPONENT),
        )
        return None
    return list_page(
        call,
        catalog.resources.values(),
        member="resources",
        describe=describe_resource,
        # For other callers, templates list entries here.
        is_private=bool(listing),
        size=call.server.page_size,
    )


def list_templates(call: Call) -> dict[str, Any]:
    """Return the resource templates that the caller may see."""
    assert call.catalog is not None
    templates = call.catalog.templates.values()
    return list_page(call, templates, member="resourceTemplates", describe=describe_template)


def describe_resource(resource: Resource) -> dict[str, Any]:
    """Return a resource in the format of 2026-07-28, which has all members."""
    described = {"uri": resource.uri, **_describe(resource)}
    if resource.size is not None:
        described["size"] = resource.size
    return described


def describe_template(template: ResourceTemplate) -> dict[str, Any]:
    """Return a resource template in the format of 2026-07-28, which has all members."""
    return {"uriTemplate": template.key, **_describe(template)}


def _describe(component: ReadableComponent) -> dict[str, Any]:
    described = common_members(component)
    if component.mime_type:
        described["mimeType"] = component.mime_type
    if component.annotations is not None:
        described["annotations"] = component.annotations.to_wire()
    return described


def authorize_read(reading: Call, uri: str) -> ReadableComponent:
    """Prepare the nested call that reads a URI, and return the component that it reads.

    Raises:
        ResourceNotFound: no resource has the URI, or the caller may not see it; the error is the
            same.
    """
    reading.catalog = reading.catalog or reading.server.catalog
    reading.name = uri
    plan = reading.plan = plan_for(reading, READ, uri)
    if plan.component is not None:
        reading.component = plan.component
    run_steps(reading, plan.nested)
    return cast(ReadableComponent, plan.component)


def find_readable(catalog: Catalog, uri: str) -> ReadableComponent | None:
    """Return the resource or template that serves a URI; ``None`` for an invalid URI too."""
    try:
        check_uri(uri)
    except ValueError:
        return None
    match = catalog.find_resource(uri)
    return None if match is None else match[0]


def _read_variables(call: Call) -> None:
    component, uri = cast(ReadableComponent, call.component), call.name
    assert call.catalog is not None
    _, variables = call.catalog.find_resource(uri) or (None, {})
    call.raw_arguments = encode(uri)
    call.record.note_authorized(variables)
    call.arguments = _arguments(component, variables, uri, call_record=call.record)
    hints = NOT_CACHEABLE
    # The result of a retry depends on an answer of the user.
    if call.params is None or not call.params.is_retry:
        is_public = component.cache_public and not depends_on_caller(call.server, component)
        if isinstance(component, UIResource) and component.depends_on_host:
            is_public = False
        hints = {
            "ttlMs": int(component.cache_ttl.total_seconds() * 1000),
            "cacheScope": "public" if is_public else "private",
        }
    call.to_result = partial(results.resource_result, component, uri, hints)
    call.to_error = partial(results.resource_failure, component, uri)


READ = ComponentMethod(
    name="resources/read",
    params=ReadParams,
    name_parameter="uri",
    find=find_readable,
    siblings=Catalog.readable_components,
    unknown=lambda call: not_found(call.name),
    read_arguments=_read_variables,
)


def is_readable(call: Call, uri: str) -> bool:
    """Return whether the caller could read a URI now.

    For a template, only its function knows which rows the caller may read, so it runs; a fixed
    resource has no rows to check. Uses the database.
    """
    try:
        component = authorize_read(call.nested(), uri)
    except (MCPError, AccessRefused):
        return False
    return not isinstance(component, ResourceTemplate) or is_row_readable(call, component, uri)


def is_row_readable(call: Call, template: ResourceTemplate, uri: str) -> bool:
    """Return whether the function of a template returns something for this URI.

    The caller must already be authorized for the template. Uses the database.
    """
    reading = call.nested()
    reading.catalog = call.server.catalog
    reading.name, reading.component = uri, template
    try:
        _read_variables(reading)
        reading.to_result = lambda value: {}
        invoke.run(reading)
    except (MCPError, AccessRefused):
        return False
    return True


def read_contents(call: Call, uri: str, interaction: Interaction | None) -> list[ResourceContents]:
    """Return the contents of a resource, for a component that reads it on behalf of its caller.

    Raises:
        InputRequired: the resource asks the client something, so the component runs again too.
        ElicitationDeclined: the user declined to answer; the component may handle this.
    """
    reading = call.nested()
    try:
        component = authorize_read(reading, uri)
    except AuthenticationRequired:
        # Another error would tell an anonymous caller that the resource exists.
        raise not_found(uri) from None
    contents: list[ResourceContents] = []
    fail = reading.to_error

    def collect(value: Any) -> dict[str, Any]:
        contents.extend(results.resource_contents(component, value))
        return {}

    def to_error(exc: Exception) -> dict[str, Any]:
        if isinstance(exc, ElicitationDeclined):
            raise exc
        return fail(exc)

    reading.to_result, reading.to_error, reading.interaction = collect, to_error, interaction
    invoke.run_unlogged(reading)
    return contents


def _arguments(
    component: ReadableComponent, variables: dict[str, str], uri: str, *, call_record: CallRecord
) -> dict[str, Any]:
    if not isinstance(component, ResourceTemplate):
        return {}
    try:
        return component.arguments.parse(json.dumps(variables).encode())
    except InvalidArguments as exc:
        call_record.note_invalid_arguments(exc.problems)
        # For example "orders/abc" where a number is expected: no such resource exists.
        raise not_found(uri) from None


def not_found(uri: str) -> ResourceNotFound:
    """Return the error for a URI without a resource that the caller may see."""
    return ResourceNotFound(
        "Resource not found; see resources/list and resources/templates/list.", data={"uri": uri}
    )


# Lists with the entries of templates --------------------------------------------------------------

FIXED_SECTION = ""

Describe = Callable[[Resource], dict[str, Any]]
SectionPage = tuple[list[dict[str, Any]], Position | None]


def may_list_entries(principal: Principal, template: ResourceTemplate) -> bool:
    """Return whether the caller may list a template's entries, which needs its scopes too."""
    return is_visible(principal, template) and not missing_scopes(principal.scopes, template.scopes)


class ResourceListing:
    """The list of resources and template entries, as one caller may see it."""

    def __init__(
        self,
        call: Call,
        templates: Sequence[ResourceTemplate],
        describe: Describe,
    ) -> None:
        self._principal = call.principal
        self._resources = call.server.catalog.resources
        self._templates = {template.key: template for template in templates}
        self._describe = describe
        self.sections = [FIXED_SECTION, *sorted(self._templates)]
        self.pager, after = open_list(call)
        # The section, and the position in it, after which the page begins.
        self.start: tuple[str, Position | None]
        match after:
            case None:
                self.start = FIXED_SECTION, None
            case [section, (None | list()) as position] if section in self.sections:
                self.start = section, position
            case _:
                # The cursor is from another deployment, or of a template that is now hidden.
                raise invalid_cursor()

    def section_page(
        self, ctx: Context, section: str, after: Position | None, limit: int
    ) -> SectionPage:
        """Return at most ``limit`` members of a section, and the position to continue after."""
        if section == FIXED_SECTION:
            return self._fixed(after, limit)
        template = self._templates[section]
        assert template.entries is not None
        try:
            page = template.entries(ctx, after, limit)
        except (*results.NOT_FOUND_EXCEPTIONS, PermissionDenied):
            # The caller may not see these rows, so the section is empty.
            return [], None
        members: list[dict[str, Any]] = []
        for resource in page.entries:
            annotations = resource.annotations
            # The format of 2026-07-28, which has all members.
            optional: dict[str, Any] = {
                "title": resource.title,
                "description": resource.description,
                "mimeType": resource.mime_type,
                "annotations": annotations.to_wire() if annotations is not None else None,
            }
            described: dict[str, Any] = {"uri": resource.uri, "name": resource.name}
            described.update({name: value for name, value in optional.items() if value})
            if resource.size is not None:
                described["size"] = resource.size
            members.append(described)
        return members, page.after

    def _fixed(self, after: Position | None, limit: int) -> SectionPage:
        resources = self._resources.values()
        visible = [resource for resource in resources if is_visible(self._principal, resource)]
        remaining = items_after(visible, after, attrgetter("key"))
        page = remaining[:limit]
        more = len(remaining) > limit
        return [self._describe(resource) for resource in page], [page[-1].key] if more else None

    def result(self, page: SectionPage) -> dict[str, Any]:
        """Return the result; it must not be cached, since entries differ between callers."""
        resources, place = page
        cursor = None if place is None else self.pager.next(place)
        return with_next_cursor({"resources": resources, **NOT_CACHEABLE}, cursor)


def _fill_page(
    ctx: Context, book: ResourceListing, section: str, after: Position | None
) -> SectionPage:
    """Return one page, filled from one section after another."""
    resources: list[dict[str, Any]] = []
    for name in book.sections[book.sections.index(section) :]:
        if len(resources) >= book.pager.size:
            return resources, [name, None]
        part, after = book.section_page(ctx, name, after, book.pager.size - len(resources))
        resources.extend(part)
        if after is not None:
            return resources, [name, after]
    return resources, None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceListComponent(Component):
    """The component of a call that lists entries; it is never registered."""

    kind: ClassVar[str] = "list"


LIST_COMPONENT = ResourceListComponent(
    name="resources/list",
    read_only=True,
    function=ComponentFunction(function=_fill_page, is_async=False, context_parameter="ctx"),
)


# The Skills extension -----------------------------------------------------------------------------

# SEP-2640: ``skills/list``, ``skills/get``, ``resources/directory/read``. The content of the
# files is read by ``resources/read`` and authorized there, as for every resource.

DIRECTORY = "inode/directory"
_by_uri = itemgetter(0)


class SkillParams(ListParams, kw_only=True):
    """Parameters of ``skills/get`` and ``resources/directory/read``."""

    uri: str


def list_skills(call: Call) -> dict[str, Any]:
    """Return the entries of the skills that the caller may see."""
    assert call.catalog is not None
    skills = call.catalog.skills
    return list_page(
        call,
        skills.entries.values(),
        member="skills",
        describe=partial(_visible_skill_entry, skills, _SkillVisibility(call.principal)),
        # An entry lists only the files that the caller may see.
        is_private=_is_private(call, *(file for files in skills.files.values() for file in files)),
    )


def get_skill(call: Call) -> dict[str, Any]:
    """Return the entry of one skill.

    Raises:
        InvalidParams: no skill has this URI, or the caller may not see it.
    """
    params = read_params(call.request.params, SkillParams)
    catalog = call.server.catalog
    skills = catalog.skills
    skill = skills.entries.get(lower_scheme(params.uri))
    is_authorized = authorize(call.principal, skill, siblings=catalog.resources.values())
    if skill is None or not is_authorized:
        raise InvalidParams(f"No skill is served at {params.uri[:200]!r}; see skills/list.")
    private = _is_private(call, *skills.files[skill.uri])
    return {
        "skill": _visible_skill_entry(skills, _SkillVisibility(call.principal), skill),
        "ttlMs": int(skill.cache_ttl.total_seconds() * 1000),
        "cacheScope": "public" if skill.cache_public and not private else "private",
    }


def _is_private(call: Call, *files: SkillFile) -> bool:
    return any(depends_on_caller(call.server, file) for file in files)


class _SkillVisibility:
    """Checks which skill files a caller may see; files with the same rules are checked once."""

    def __init__(self, principal: Principal) -> None:
        self._verdicts = PermissionCache(principal)
        self._known: dict[tuple[int, tuple[str, ...]], bool] = {}

    def sees(self, file: SkillFile) -> bool:
        """Return whether the caller may see a file."""
        key = id(file.permission), file.scopes
        if key not in self._known:
            permission_cache = self._verdicts
            self._known[key] = is_visible(
                permission_cache.principal, file, permission_cache=permission_cache
            )
        return self._known[key]

    def check_all(self, resources: Iterable[Resource]) -> None:
        """Check all permissions, so that unknown and hidden directories take the same time."""
        self._verdicts.check_all(resources)


def _visible_skill_entry(
    skills: Skills, visibility: _SkillVisibility, skill: SkillFile
) -> dict[str, Any]:
    """Return the entry of a skill with the files that the caller may see."""
    return skill_entry(skill, filter(visibility.sees, skills.files[skill.uri]))


def skill_entry(skill: SkillFile, files: Iterable[SkillFile]) -> dict[str, Any]:
    """Return the entry of a skill with these files."""
    return {
        "uri": skill.uri,
        "frontmatter": skill.frontmatter,
        "resources": [
            {"uri": file.uri, "digest": file.digest, "size": file.size} for file in files
        ],
    }


def read_directory(call: Call) -> dict[str, Any]:
    """Return the direct children of a directory that the caller may see.

    Raises:
        InvalidParams: the directory does not exist, or the caller may see nothing in it.
    """
    params = read_params(call.request.params, SkillParams)
    catalog = call.server.catalog
    skills = catalog.skills
    visibility = _SkillVisibility(call.principal)
    children = [
        (uri, child)
        for uri, child in skills.directories.get(lower_scheme(params.uri), {}).items()
        if any(map(visibility.sees, _files_under(skills, uri, child)))
    ]
    if not children:
        visibility.check_all(catalog.resources.values())
        raise InvalidParams(
            f"{params.uri[:200]!r} is not a directory here; write it without a trailing slash."
        )
    pager, after = open_list(call, params.uri)
    entries, cursor = pager.page(items_after(children, after, _by_uri), _by_uri)
    listed = [
        {"uri": uri, "name": uri.rpartition("/")[2], "mimeType": DIRECTORY}
        if child is None
        else describe_resource(child)
        for uri, child in entries
    ]
    return with_next_cursor({"resources": listed}, cursor)


def _files_under(skills: Skills, uri: str, file: SkillFile | None) -> Iterator[SkillFile]:
    """Yield a file, or all files below a directory."""
    waiting = [(uri, file)]
    while waiting:
        uri, file = waiting.pop()
        if file is None:
            waiting += skills.directories[uri].items()
        else:
            yield file
