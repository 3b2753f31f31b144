"""``Trial``: one component of one server, one caller and one revision, as a link says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.pages import Visit
from mcp_django.admin.trying.callers import Caller
from mcp_django.core.catalog import Offered
from mcp_django.core.component import Component, Prompt
from mcp_django.core.resource import Resource, ResourceTemplate
from mcp_django.core.tool import Tool
from mcp_django.execution.policy import visible
from mcp_django.protocol.revisions import LATEST, REVISIONS, Revision
from mcp_django.schema.secrets import is_secret
from mcp_django.schema.structure import Schema

KINDS: Mapping[str, str] = {
    "tool": "tool",
    "resource": "resource",
    "template": "resource template",
    "prompt": "prompt",
}
"""As links name them, and as the specification does."""
TITLES: Mapping[str, Any] = {
    "tool": _("Tools"),
    "resource": _("Resources"),
    "template": _("Resource templates"),
    "prompt": _("Prompts"),
}
PREVIEW = "preview"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is tried, by whom, and in which revision; ``values`` are known from a link already."""

    visit: Visit
    caller: Caller
    revision: Revision
    kind: str
    component: Component
    values: Mapping[str, str]

    @property
    def key(self) -> str:
        """What links name the component by."""
        return self.component.key

    @property
    def url(self) -> str:
        """A link to this form."""
        return url_for(self.visit, self.caller, self.revision, kind=self.kind, key=self.key)

    @property
    def schema(self) -> Schema:
        """The schema of what may be entered."""
        component = self.component
        if isinstance(component, Tool):
            for_caller = getattr(component.arguments, "for_caller", None)
            source = for_caller(self.caller.principal) if for_caller else component.arguments
            return dict(source.json_schema)
        if isinstance(component, Prompt):
            return dict(component.arguments.json_schema)
        if isinstance(component, ResourceTemplate):
            return _of_variables(component)
        return {"type": "object", "properties": {}, "additionalProperties": False}

    @property
    def form_schema(self) -> Schema:
        """The same for a form, whose fields do not show the secrets that are typed into them."""
        schema = self.schema
        members = {
            name: {**member, "writeOnly": True}
            if isinstance(member, dict)
            and member.get("type") == "string"
            and is_secret(schema, (name,), sensitive=self.component.sensitive)
            else member
            for name, member in schema.get("properties", {}).items()
        }
        return {**schema, "properties": members} if members else schema

    @property
    def may_write(self) -> bool:
        """Whether running it is asked about once more."""
        return isinstance(self.component, Tool) and self.component.read_only is not True

    @property
    def is_task(self) -> bool:
        """Whether it runs as a task alone; what may or may not is run as any other is."""
        component = self.component
        return isinstance(component, Tool) and component.task == "required" and not component.handle

    @property
    def has_preview(self) -> bool:
        """Whether it can be run dry, as the write tools of models can.

        What others mean by an argument of that name is not known, and may well write.
        """
        component = self.component
        is_known = isinstance(component, Tool) and component.dry_run is not None
        return self.may_write and is_known and PREVIEW in self.schema.get("properties", {})

    @property
    def completed(self) -> list[str]:
        """The arguments that the server has suggestions for."""
        known = self.visit.server.offered.completions
        kind = KINDS[self.kind]
        names = self.schema.get("properties", {})
        return [name for name in names if (kind, self.key, name) in known]


def _of_variables(template: ResourceTemplate) -> Schema:
    """The variables of a template, which alone are in its URI."""
    schema = template.arguments.json_schema
    known = schema.get("properties", {})
    properties = {name: known.get(name, {"type": "string"}) for name in template.template.variables}
    required = [name for name in schema.get("required", ()) if name in properties]
    rest = {key: value for key, value in schema.items() if key in ("$defs", "definitions")}
    return {**rest, "type": "object", "properties": properties, "required": required}


def find(offered: Offered, kind: str, key: str) -> tuple[str, Component, dict[str, str]] | None:
    """The component that a link names; a URI is that of a resource or fits a template."""
    if kind not in KINDS:
        return None
    found = offered.tables[KINDS[kind]].get(key)
    if found is not None:
        return kind, found, {}
    if kind != "resource":
        return None
    readable = offered.find_resource(key)
    if readable is None:
        return None
    component, values = readable
    return ("resource" if isinstance(component, Resource) else "template"), component, values


def shown_components(offered: Offered, caller: Caller, sought: str) -> dict[str, list[Component]]:
    """What the caller may see by kind, of what has the sought text in its name or title."""
    text = sought.casefold()
    return {
        kind: sorted(
            (
                one
                for one in offered.tables[KINDS[kind]].values()
                if text in f"{one.key} {one.name} {one.title}".casefold()
                and visible(caller.principal, one)
            ),
            key=lambda one: one.key,
        )
        for kind in KINDS
    }


def revision_named(versions: tuple[str, ...], name: str) -> Revision:
    """A served revision; the newest without handshake, or the first, for any other name."""
    if name in versions and name in REVISIONS:
        return REVISIONS[name]
    return LATEST if LATEST.version in versions else REVISIONS[versions[0]]


def url_for(visit: Visit, caller: Caller, revision: Revision, **query: str) -> str:
    """A link to this page that keeps who tries and in which revision."""
    if caller.acting:
        query["user"] = caller.name
    if revision is not LATEST:
        query["revision"] = revision.version
    return f"{base_url(visit)}?{urlencode(query)}"


def base_url(visit: Visit) -> str:
    """Where the page is."""
    site = getattr(visit.request, "current_app", None)
    return reverse("admin:mcp_django_server_try", args=[visit.row.pk], current_app=site)


def entered(request: HttpRequest) -> dict[str, str]:
    """What a link says."""
    return {name: request.GET.get(name, "") for name in ("kind", "key", "user", "revision", "q")}
