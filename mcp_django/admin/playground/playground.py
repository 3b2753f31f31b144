"""``PlaygroundTarget``: a component of a server with a caller and a revision, from the URL.

This module also determines the caller, builds a request from the form, sends it as a client would,
and writes the entry in the admin history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext

from mcp_django import __version__
from mcp_django.admin.base import ServerPageRequest
from mcp_django.auth.principal import Principal, find_user_by_name, principal_for
from mcp_django.components.catalog import Catalog
from mcp_django.components.component import Component, Prompt
from mcp_django.components.questions import ANSWERABLE
from mcp_django.components.resource import ReadableComponent, Resource, ResourceTemplate
from mcp_django.components.tool import Tool
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.execution.policy import is_visible
from mcp_django.models import Component as ComponentRow
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES
from mcp_django.protocol.revisions import LATEST, REVISIONS, Revision
from mcp_django.schema.secrets import is_secret
from mcp_django.schema.structure import Schema
from mcp_django.transports.memory import LocalClient, with_tasks

MethodCall = tuple[str, dict[str, Any]]


def build_request(target: PlaygroundTarget, values: Mapping[str, Any]) -> MethodCall:
    """Return the method that uses the component, and its parameters.

    Raises:
        ValidationError: the URI template cannot be expanded with the values.
    """
    component = target.component
    if isinstance(component, Tool):
        return "tools/call", {"name": component.name, "arguments": dict(values)}
    if isinstance(component, Prompt):
        return "prompts/get", {"name": component.name, "arguments": _as_texts(values)}
    assert isinstance(component, ReadableComponent)
    if isinstance(component, ResourceTemplate):
        texts = _as_texts(values)
        try:
            return "resources/read", {"uri": component.template.expand(texts)}
        except ValueError as exc:
            raise ValidationError(str(exc)) from None
    return "resources/read", {"uri": component.key}


def build_completion_request(
    target: PlaygroundTarget, name: str, value: str, other_values: Mapping[str, str]
) -> MethodCall:
    """Return the request for suggestions for one argument."""
    ref = {"type": "ref/resource", "uri": target.key}
    if isinstance(target.component, Prompt):
        ref = {"type": "ref/prompt", "name": target.component.name}
    params: dict[str, Any] = {"ref": ref, "argument": {"name": name, "value": value}}
    if other_values and target.revision.completion_context:
        params["context"] = {"arguments": dict(other_values)}
    return "completion/complete", params


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return arguments as text, which is how prompts and templates take them."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
        if value is not None
    }


RUN_AS_PERMISSION = "mcp_django.try_as_another"


class NoSuchUser(Exception):
    """The user does not exist, or may not be used as caller; the text is for the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundCaller:
    """The user as whom calls run; ``acting`` is the signed-in user if another one, else empty.

    A call as another user requires the permission ``try_as_another``.
    """

    principal: Principal
    name: str
    acting: str = ""


def caller_for(request: HttpRequest, username: str) -> PlaygroundCaller:
    """Return the caller with this name, or the signed-in user without a name.

    Raises:
        PermissionDenied: another user was named without the permission ``try_as_another``.
        NoSuchUser: the user does not exist, is inactive, or is a superuser and the signed-in
            user is not.
    """
    me: Any = request.user
    my_name = me.get_username()
    if not username or username == my_name:
        return PlaygroundCaller(principal=principal_for(me), name=my_name)
    if not may_act_as_others(request):
        raise PermissionDenied
    user = find_user_by_name(username)
    # The same error as for a missing user, so that it does not reveal who is a superuser.
    if user is None or not user.is_active or (user.is_superuser and not me.is_superuser):
        raise NoSuchUser(gettext("No user “%s” exists whom you may run calls as.") % username)
    return PlaygroundCaller(principal=principal_for(user), name=user.get_username(), acting=my_name)


def may_act_as_others(request: HttpRequest) -> bool:
    """Return whether the signed-in user may run calls as another user."""
    user: Any = request.user
    return bool(user.has_perm(RUN_AS_PERMISSION))


KINDS: Mapping[str, str] = {
    "tool": "tool",
    "resource": "resource",
    "template": "resource template",
    "prompt": "prompt",
}
"""The kinds by their names in links, with the names of the specification."""
PREVIEW = "preview"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundTarget:
    """A component with its caller and revision; ``values`` are template variables of the link."""

    page_request: ServerPageRequest
    caller: PlaygroundCaller
    revision: Revision
    kind: str
    component: Component
    values: Mapping[str, str]

    @property
    def key(self) -> str:
        """The key of the component, which links contain."""
        return self.component.key

    @property
    def url(self) -> str:
        """The URL of this form."""
        return url_for(self.page_request, self.caller, self.revision, kind=self.kind, key=self.key)

    @property
    def schema(self) -> Schema:
        """The schema of the arguments."""
        component = self.component
        if isinstance(component, Tool):
            return dict(component.arguments_for(self.caller.principal).json_schema)
        if isinstance(component, Prompt):
            return dict(component.arguments.json_schema)
        if isinstance(component, ResourceTemplate):
            # The variables of a template are the only arguments in its URI.
            schema = component.arguments.json_schema
            property_schemas = schema.get("properties", {})
            properties = {
                name: property_schemas.get(name, {"type": "string"})
                for name in component.template.variables
            }
            required = [name for name in schema.get("required", ()) if name in properties]
            definitions = {
                key: value for key, value in schema.items() if key in ("$defs", "definitions")
            }
            return {**definitions, "type": "object", "properties": properties, "required": required}
        return {"type": "object", "properties": {}, "additionalProperties": False}

    @property
    def form_schema(self) -> Schema:
        """The same schema for a form, with secrets as write-only properties."""
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
        """Whether running the component requires a confirmation."""
        return isinstance(self.component, Tool) and self.component.read_only is not True

    @property
    def is_task(self) -> bool:
        """Whether the tool can only run as a task; with optional support it runs without one."""
        component = self.component
        return (
            isinstance(component, Tool)
            and component.task == "required"
            and not component.polling_fallback
        )

    @property
    def has_preview(self) -> bool:
        """Whether the tool supports a dry run, as the write tools of models do.

        Other tools can have an argument of this name with another meaning, and may write.
        """
        has_dry_run = getattr(self.component, "dry_run", None) is not None
        return self.may_write and has_dry_run and PREVIEW in self.schema.get("properties", {})

    @property
    def completed_arguments(self) -> list[str]:
        """The names of the arguments that the server has completions for."""
        completions = self.page_request.server.catalog.completions
        names = self.schema.get("properties", {})
        return [name for name in names if (KINDS[self.kind], self.key, name) in completions]


def find_component(
    catalog: Catalog, kind: str, key: str
) -> tuple[str, Component, dict[str, str]] | None:
    """Return the component of a link, whose URI may be that of a resource or match a template."""
    if kind not in KINDS:
        return None
    component = catalog.by_kind[KINDS[kind]].get(key)
    if component is not None:
        return kind, component, {}
    readable = catalog.find_resource(key) if kind == "resource" else None
    if readable is None:
        return None
    component, values = readable
    return ("resource" if isinstance(component, Resource) else "template"), component, values


def visible_components(
    catalog: Catalog, caller: PlaygroundCaller, search: str
) -> dict[str, list[Component]]:
    """Return the visible components by kind whose key, name or title contains the text."""
    text = search.casefold()
    return {
        kind: [
            component
            for _key, component in sorted(catalog.by_kind[name].items())
            if text in f"{component.key} {component.name} {component.title}".casefold()
            and is_visible(caller.principal, component)
        ]
        for kind, name in KINDS.items()
    }


def find_revision(versions: tuple[str, ...], name: str) -> Revision:
    """Return a supported revision by name, else the latest, else the server's first one."""
    if name in versions and name in REVISIONS:
        return REVISIONS[name]
    return LATEST if LATEST.version in versions else REVISIONS[versions[0]]


def url_for(
    page_request: ServerPageRequest, caller: PlaygroundCaller, revision: Revision, **query: str
) -> str:
    """Return a URL of this page that keeps the caller and the revision."""
    if caller.acting:
        query["user"] = caller.name
    if revision is not LATEST:
        query["revision"] = revision.version
    return f"{base_url(page_request)}?{urlencode(query)}"


def base_url(page_request: ServerPageRequest) -> str:
    """Return the URL of this page without a query."""
    site = getattr(page_request.request, "current_app", None)
    return reverse(
        "admin:mcp_django_server_playground", args=[page_request.row.pk], current_app=site
    )


def read_query(request: HttpRequest) -> dict[str, str]:
    """Return the query parameters of a link."""
    return {name: request.GET.get(name, "") for name in ("kind", "key", "user", "revision", "q")}


# A client of 2026-07-28 sends its answers with the request. In a handshake revision the server
# sends requests to the client while the call runs, so the answers of earlier rounds are repeated,
# and the function runs from the beginning, as it does in every round.

Wire = dict[str, Any]

PLAYGROUND_CLIENT = {"name": "mcp_django.admin", "title": "Try it", "version": __version__}
# The number of notifications that a page shows.
MAX_NOTES = 200


@dataclass(slots=True)
class NotificationBuffer:
    """The first ``MAX_NOTES`` progress and log messages of a running call."""

    kept: list[Wire] = field(default_factory=list)
    dropped: int = 0

    def add(self, message: Wire) -> None:
        """Keep a notification, or count it as dropped."""
        if len(self.kept) < MAX_NOTES:
            self.kept.append(message)
        else:
            self.dropped += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The outcome of a request; ``refusal`` says why the server rejected it before handling."""

    exchanges: Sequence[tuple[Wire, Wire]]
    notes: NotificationBuffer
    refusal: str = ""

    @property
    def response(self) -> Wire:
        """The last response, empty if there was none."""
        return self.exchanges[-1][1] if self.exchanges else {}

    @property
    def result(self) -> Wire:
        """The result in the last response, empty if that is an error."""
        return dict(self.response.get("result", {}))

    @property
    def client_requests(self) -> Wire:
        """The pending client requests, by key."""
        asks = self.result.get("resultType") == "input_required"
        return dict(self.result.get("inputRequests", {})) if asks else {}


def send_request(
    target: PlaygroundTarget,
    request: MethodCall,
    *,
    answers: Sequence[Mapping[str, Any]] = (),
    state: str = "",
) -> RequestOutcome:
    """Send a request and return its outcome; ``answers`` are those of the user, by round."""
    method, params = request
    notes = NotificationBuffer()
    remaining_answers = list(answers)

    def answer_again(questions: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the answers of this round in an earlier run, if the requests are the same."""
        if not remaining_answers or set(remaining_answers[0]) != set(questions):
            remaining_answers.clear()
            return None
        return remaining_answers.pop(0)

    client = LocalClient(
        target.page_request.server,
        target.caller.principal,
        revision=target.revision,
        client_info=PLAYGROUND_CLIENT,
        capabilities=ANSWERABLE,
        answer=None if target.revision.stateless else answer_again,
        hear=notes.add,
        origin="admin",
        acting=target.caller.acting,
    )
    extra_params: Wire = {}
    is_task = method == "tools/call" and target.is_task
    if is_task and target.revision.tasks:
        extra_params["task"] = {}
    if target.revision.stateless:
        if is_task:
            extra_params["_meta"] = {CLIENT_CAPABILITIES: with_tasks(ANSWERABLE)}
        if answers:
            extra_params["inputResponses"] = answers[-1]
        if state:
            extra_params["requestState"] = state
    refusal = ""
    try:
        client.request(method, {**params, **extra_params})
    except AccessRefused as exc:
        refusal = exc.message
    except MCPError:
        # It is the response of the last exchange.
        pass
    return RequestOutcome(exchanges=client.exchanges, notes=notes, refusal=refusal)


def log_run(target: PlaygroundTarget) -> None:
    """Write an entry without values to the admin history of the server, before something runs.

    Every call that may write and is not a preview gets an entry, and every call as another user.
    """
    page_request, caller = target.page_request, target.caller
    text = gettext("Tried the %(kind)s “%(key)s”.")
    if caller.acting:
        text = gettext("Tried the %(kind)s “%(key)s” as the user “%(user)s”.")
    kind = ComponentRow.Kind(target.component.kind).label
    values = {"kind": kind, "key": target.key[:200], "user": caller.name}
    user: Any = page_request.request.user
    LogEntry.objects.log_actions(
        user.pk, [page_request.row], CHANGE, text % values, single_object=True
    )
