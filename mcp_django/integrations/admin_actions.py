"""Admin actions as tools, and the request that is passed to the methods of a ``ModelAdmin``.

A tool call passes the keys of the chosen rows. The action runs with a request of the caller and
with these rows of the admin's own queryset. An action that returns an HTML page asks for more
input there, so the call fails and its changes are rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from typing import Annotated, Any, Protocol
from urllib.parse import unquote

from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import model_format_dict
from django.contrib.messages import ERROR
from django.contrib.messages.storage.base import BaseStorage, Message
from django.db import DEFAULT_DB_ALIAS, router, transaction
from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django.urls import (
    NoReverseMatch,
    Resolver404,
    ResolverMatch,
    get_script_prefix,
    resolve,
    reverse,
)
from django.utils.translation import override
from pydantic import Field

from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.components.context import Context
from mcp_django.components.declare import GeneratedArgument, build_arguments, build_function
from mcp_django.components.tool import Tool
from mcp_django.exceptions import ToolError
from mcp_django.integrations import site_responses
from mcp_django.integrations.models.columns import suggest_name
from mcp_django.integrations.models.exposed_fields import FieldDeclaration, Key
from mcp_django.integrations.models.row_access import Action, RowRules, filter_viewable
from mcp_django.integrations.site_requests import (
    CallerRequest,
    Pairs,
    SiteRequest,
    build_request,
    close_files,
    superuser_context,
)
from mcp_django.integrations.site_responses import message_text, read_response
from mcp_django.protocol.content import ToolResult
from mcp_django.schema.arguments import to_json_text

MAX_KEYS = 100
DELETE = "delete_selected"


class AdminDeclaration(FieldDeclaration, RowRules, Protocol):
    """The declaration of the tools of a ``ModelAdmin``, as this module uses it."""

    model_admin: Any
    fields: Sequence[str]
    object_fields: Sequence[str]
    inlines: Sequence[Any]
    always_shown: Collection[str] | None

    @property
    def plurals(self) -> str:
        """The plural name of the model in tool names."""

    @property
    def lookup(self) -> Key:
        """The field by which callers identify one object."""

    def request(self, ctx: Context) -> CallerRequest:
        """Return the request that is passed to the admin, one for each call."""

    def needed_scopes(self, action: Action) -> tuple[str, ...]:
        """Return the scopes of a component that performs the action."""


def action_tool(declaration: AdminDeclaration, action: str) -> Tool:
    """Return the tool that runs an action of the admin."""
    words = _action_label(declaration, action)
    plurals = declaration.plurals
    name = action if action.endswith(f"_{plurals}") else f"{action}_{plurals}"
    key = declaration.lookup
    keys: Any = Annotated[list[key.annotation], Field(min_length=1, max_length=MAX_KEYS)]  # type: ignore[name-defined]
    on_default = router.db_for_write(declaration.model) == DEFAULT_DB_ALIAS
    return Tool(
        name=name,
        description=f"{words}. An action of the site's admin.",
        function=build_function(partial(_run_action, declaration, action), name=name),
        arguments=build_arguments(
            name,
            {
                "keys": GeneratedArgument(
                    annotation=keys,
                    description=f"The {declaration.nouns} to run it on: the {key.name} of each.",
                    required=True,
                )
            },
        ),
        permission=ActionPermission(declaration, action),
        scopes=declaration.needed_scopes("change"),
        read_only=False,
        destructive=True,
        atomic=True if on_default else None,
    )


class ActionPermission(BasePermission):
    """Allow an action that the admin lists for the caller."""

    def __init__(self, declaration: AdminDeclaration, action: str) -> None:
        self._declaration = declaration
        self._action = action

    def __str__(self) -> str:
        return f"{type(self._declaration.model_admin).__name__}.{self._action}"

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the caller may open the admin's list and the list offers the action."""
        server = self._declaration.server
        ctx = Context(server=server, principal=principal, protocol_version="")
        admin = self._declaration.model_admin
        request = self._declaration.request(ctx)
        return (
            admin.admin_site.has_permission(request)
            and admin.has_view_or_change_permission(request)
            and self._action in admin.get_actions(request)
        )


def _action_label(declaration: AdminDeclaration, action: str) -> str:
    if action == DELETE:
        declaration.refuse(
            f"actions contains {DELETE!r}; add 'delete' to tools instead, which deletes one object "
            "and reports the related objects that were deleted with it."
        )
    admin = declaration.model_admin
    # Untranslated, because no caller's language is known at registration.
    with override(None):
        actions: Any = admin.get_actions(
            admin_request(superuser_context(declaration.server), admin)
        )
        if action not in actions:
            names = [name for name in actions if name != DELETE]
            declaration.refuse(f"actions contains {action!r}; {suggest_name(action, names)}")
        label = str(_function_and_label(actions[action])[1]) % model_format_dict(
            declaration.model._meta
        )
    return label.rstrip(".")


def _function_and_label(action: Any) -> tuple[Callable[..., Any], str]:
    """Return the function of an action and its description."""
    # Up to Django 6.0, an action is a tuple.
    if isinstance(action, tuple):
        return action[0], action[2]
    return action.func, action.plural_description or action.description


def _run_action(
    declaration: AdminDeclaration, action: str, ctx: Context, arguments: dict[str, Any]
) -> Any:
    with transaction.atomic(using=router.db_for_write(declaration.model)):
        # A hidden row is reported like one that does not exist.
        name = declaration.lookup.name
        named_rows = declaration.rows(ctx).filter(**{f"{name}__in": arguments["keys"]})
        viewable_rows = filter_viewable(declaration, ctx, named_rows)
        pks_by_key = {str(key): pk for key, pk in viewable_rows.values_list(name, "pk")}
        missing = [key for key in arguments["keys"] if str(key) not in pks_by_key]
        if missing:
            listed = ", ".join(to_json_text(key) for key in missing[:10])
            raise ToolError(
                f"There are no {declaration.nouns} with {name} {listed}. The action was not run on "
                "the others."
            )
        chosen = list(pks_by_key.values())
        posted = [
            ("action", action),
            ("index", "0"),
            ("select_across", "0"),
            *((ACTION_CHECKBOX_NAME, str(pk)) for pk in chosen),
        ]
        request = admin_request(ctx, declaration.model_admin, data=posted)
        admin = declaration.model_admin
        rows: QuerySet[Any] = admin.get_queryset(request).filter(pk__in=chosen)
        actions: Any = admin.get_actions(request)
        response = _function_and_label(actions[action])[0](admin, request, rows)
        if isinstance(response, HttpResponseBase):
            return _response_result(declaration, ctx, request, response)
        messages = request._messages.messages  # type: ignore[attr-defined]  # CollectedMessages
        failed = [message for message in messages if message.level >= ERROR]
        texts = [message_text(message) for message in messages]
        if not texts:
            nouns = declaration.noun if len(chosen) == 1 else declaration.nouns
            texts = [f"Done: {action} ran on {len(chosen)} {nouns}."]
        return ToolResult(*texts, is_error=bool(failed) and len(failed) == len(messages))


def _response_result(
    declaration: AdminDeclaration, ctx: Context, request: CallerRequest, response: HttpResponseBase
) -> ToolResult:
    """Return a result with the file that the action returned, or the target of its redirect.

    Raises:
        ToolError: the response is an HTML page, on which the admin asks for more input.
    """
    try:
        is_html = response.get("Content-Type", "").partition(";")[0].strip() == "text/html"
        is_file = "attachment" in response.get("Content-Disposition", "")
        if is_html and not is_file and response.status_code < 300:
            raise ToolError(
                "This action opens a page of the admin that asks for more input. Run it there: "
                f"{request.build_absolute_uri(changelist_path(declaration.model_admin))}. "
                "Nothing was changed."
            )
        if not getattr(response, "is_rendered", True):
            response.render()  # type: ignore[attr-defined]  # a template response
        answer = read_response(request, response, is_over=lambda: ctx.cancelled)
        site_responses.check_status(answer, method="POST")
        return site_responses.tool_result(answer, is_readable=False)
    finally:
        close_files(response)


class CollectedMessages(BaseStorage):
    """A message storage that keeps messages for the result of the call, not for the next page."""

    def _get(self, *args: Any, **kwargs: Any) -> tuple[list[Message], bool]:
        return [], True

    def _store(self, messages: Any, response: Any, *args: Any, **kwargs: Any) -> list[Message]:
        return []

    @property
    def messages(self) -> list[Message]:
        """The messages that were added so far."""
        queued: list[Message] = self._queued_messages  # type: ignore[attr-defined]  # of the base
        return list(queued)


class AdminRequest(CallerRequest):
    """A request to the admin's list of a model; its URL is resolved only when it is read.

    The forms of an admin are built when tools are declared, and the URLconf itself may be importing
    the module that declares them.
    """

    model_admin: ModelAdmin[Any]

    @cached_property
    def path(self) -> str:  # type: ignore[override]  # an attribute of the base
        """The path of the list, with the script prefix."""
        return unquote(changelist_path(self.model_admin))

    @cached_property
    def path_info(self) -> str:  # type: ignore[override]  # an attribute of the base
        """The path of the list, without the script prefix."""
        path = "/" + self.path.removeprefix(get_script_prefix())
        self.META["PATH_INFO"] = path
        return path

    @cached_property
    def resolver_match(self) -> ResolverMatch | None:  # type: ignore[override]  # like the others
        """The match of the path, or ``None`` if no URL pattern matches it."""
        try:
            return resolve(self.path_info)
        except Resolver404:
            return None


def admin_request(
    ctx: Context, model_admin: ModelAdmin[Any], *, data: Pairs | None = None
) -> AdminRequest:
    """Return a request of the caller to the admin's list of the model, for methods of the admin.

    It does not pass through middleware, so it has a user and messages, but no session.
    """
    sending = SiteRequest(
        method="GET" if data is None else "POST",
        path=get_script_prefix(),
        body=data or [],
    )
    request = build_request(ctx, sending, AdminRequest)
    request.model_admin = model_admin
    request.user = ctx.user
    request._messages = CollectedMessages(request)  # type: ignore[attr-defined]  # of the message framework
    for name in ("path", "path_info", "resolver_match"):
        # The cached properties replace the values that the base class has set.
        vars(request).pop(name)
    return request


def changelist_path(model_admin: ModelAdmin[Any]) -> str:
    """Return the URL path of the admin's list, or the root path if the admin has no URLs."""
    options = model_admin.model._meta
    name = f"{model_admin.admin_site.name}:{options.app_label}_{options.model_name}_changelist"
    try:
        return reverse(name)
    except NoReverseMatch:
        return get_script_prefix()
