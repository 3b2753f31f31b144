"""``Plan``: what a call of one component does before its function runs, put together once.

A plan has only the steps that its component uses: without a permission or scope nothing is
authorized, without a rate nothing is counted. To add a step to calls, write a function of one
``Call`` in the module of its topic, and add it to ``admission_of`` with the condition under which a
plan has it.

Catalogs own the plans (``Catalog.plans``). A plan is built at the first call of its component at a
revision, and dropped with its catalog, which every change in the admin and every registration
replaces. It is built again when a setting changes. It contains nothing that may differ between two
calls: not the caller, the language, the host, receivers of signals, or the tracer. Plans are only
read, so threads share them; a forked child keeps them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from mcp_django.auth.backends import BEARER_BACKENDS, SESSION_BACKENDS, CallerKey
from mcp_django.auth.permissions import needs_only_account, parse_permissions
from mcp_django.auth.principal import Account, Principal
from mcp_django.components.catalog import Catalog, Server
from mcp_django.components.component import Component
from mcp_django.conf import Settings, get_settings
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.execution import approval_guard, interaction, quotas
from mcp_django.execution.call import Call, ComponentMethod, HandlerResult, Plan, Step
from mcp_django.execution.call_record import identify
from mcp_django.execution.policy import authorize, authorize_connection, is_open
from mcp_django.execution.task_support import admit_task, has_task_tools
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.protocol.revisions import Revision
from mcp_django.schema.deferred import DeferredArguments


class Circumstances(NamedTuple):
    """The conditions that decide which steps a plan has."""

    component: Component
    revision: Revision
    catalog: Catalog
    has_server_rates: bool

    @property
    def is_guarded(self) -> bool:
        """Whether a caller may be rejected."""
        component = self.component
        return component.permission is not None or bool(component.scopes) or self.needs_approval

    @property
    def may_be_task(self) -> bool:
        """Whether a call may become a task, or a client may request a task that the tool lacks."""
        is_tool = self.component.kind == "tool"
        can_request = is_tool and self.revision.tasks and has_task_tools(self.catalog)
        return can_request or bool(getattr(self.component, "task", ""))

    @property
    def has_rates(self) -> bool:
        """Whether uses are counted."""
        return self.has_server_rates or bool(self.component.rates)

    @property
    def needs_approval(self) -> bool:
        """Whether each call needs the approval of a person."""
        return bool(getattr(self.component, "approval", ""))


def admission_of(
    circumstances: Circumstances, method: ComponentMethod, *, is_continued: bool = False
) -> tuple[Step, ...]:
    """Return the steps before the function runs, in order.

    ``is_continued`` is for calls that continue an earlier one with the client's answers, which are
    checked even if the component does not ask.
    """
    steps: list[Step] = [method.read_arguments]
    if is_continued or interaction.may_ask(circumstances.component):
        steps.append(interaction.open_interaction)
    if circumstances.has_rates:
        steps.append(quotas.consume)
    if circumstances.needs_approval:
        steps.append(approval_guard.open_guard)
    if circumstances.may_be_task:
        steps = [partial(admit_task, rest=tuple(steps))]
    if circumstances.is_guarded:
        # First: a caller that may not see a component must learn nothing from its arguments.
        steps = [authorize_component, *steps]
    return tuple(steps)


def authorize_component(call: Call) -> None:
    """Check that the caller may use the component; if not, answer as if it did not exist.

    Raises:
        MCPError: the caller may not see the component, or it does not exist.
        AuthenticationRequired: the caller is anonymous, and credentials might give access.
        InsufficientScope: the credential lacks a scope.
    """
    assert call.plan is not None
    component, siblings = call.plan.component, call.plan.method.siblings
    principal, catalog = call.principal, call.catalog
    assert catalog is not None
    is_authorized = authorize(
        principal, component, siblings=siblings(catalog), call_record=call.record
    )
    needs_user = bool(getattr(component, "approval", "")) and not principal.is_authenticated
    if is_authorized and needs_user and not principal.may_sign_in:
        # The same checks as for an absent component.
        is_authorized = authorize(principal, None, siblings=siblings(catalog))
    # The site owner learns that the requested component is disabled.
    declared = catalog.declared_catalog if component is None else None
    if declared is not None and call.plan.method.find(declared, call.record.name) is not None:
        call.record.note_hidden_by("the admin, where it is disabled")
    if component is None or not is_authorized:
        raise call.plan.method.unknown(call)
    if needs_user:
        raise AuthenticationRequired("This needs credentials.", scopes=component.scopes)


def plan_for(call: Call, method: ComponentMethod, name: str) -> Plan:
    """Return the plan of the component with this name, or that of an absent component."""
    server, catalog = call.server, call.catalog
    revision, settings = call.envelope.revision, get_settings()
    assert catalog is not None
    plan: Plan | None = catalog.plans.get((method.name, name, revision.version))
    if plan is None:
        # An alias, a URI of a template, or a name without a component: none is a key of a plan.
        component = method.find(catalog, name)
        key = (method.name, None if component is None else component.key, revision.version)
        plan = catalog.plans.get(key)
    else:
        component, key = plan.component, (method.name, name, revision.version)
    if plan is None or plan.settings is not settings or plan.server is not server:
        plan = catalog.plans[key] = _make_plan(server, catalog, method, component, revision)
    return plan


def _make_plan(
    server: Server,
    catalog: Catalog,
    method: ComponentMethod,
    component: Component | None,
    revision: Revision,
) -> Plan:
    rates, siblings = bool(server.rates), [*method.siblings(catalog)]
    # The only step for a name without a component; it runs in a thread if any sibling needs one.
    admission: tuple[Step, ...] = (authorize_component,)
    continued = nested = admission
    if component is None:
        deciding, about = siblings, None
    else:
        circumstances = Circumstances(component, revision, catalog, rates)
        admission = admission_of(circumstances, method)
        continued = admission_of(circumstances, method, is_continued=True)
        guards = (authorize_component,) if circumstances.is_guarded else ()
        nested = (*guards, method.read_arguments)
        deciding = siblings if circumstances.is_guarded else [component]
        about = identify(component, server)
    return Plan(
        method=method,
        component=component,
        admission=admission,
        continued=continued,
        nested=nested,
        about=about,
        where="thread" if rates or any(map(_needs_thread, deciding)) else "loop",
        server=server,
        settings=get_settings(),
    )


def _needs_thread(component: Component) -> bool:
    """Return whether a call runs a sync function or a permission of the site, or is counted."""
    permissions = parse_permissions(component.permission)
    return (
        not component.function.is_async
        # A form of the site, which may query.
        or isinstance(getattr(component, "arguments", None), DeferredArguments)
        or bool(component.rates)
        or not all(map(needs_only_account, permissions))
    )


def admit_component(method: ComponentMethod, call: Call) -> HandlerResult:
    """Admit the call of a component, whose function runs later.

    Return the answer if a step of the plan already answers the call, for example because of invalid
    arguments.

    Raises:
        InvalidParams: the parameters are malformed.
        MCPError, AccessRefused: a step rejects the call.
    """
    params: Any = read_params(
        call.request.params, method.params, lenient=not call.envelope.revision.stateless
    )
    name = getattr(params, method.name_parameter)
    plan = call.plan
    if plan is None or name != call.name:
        plan = call.plan = plan_for(call, method, name)
    call.params, call.name = params, name
    if plan.component is not None:
        call.component = plan.component
    call.record.note_component(name, plan.component, plan.about)
    is_continued = params.request_state is not None or params.input_responses
    for step in plan.continued if is_continued else plan.admission:
        step(call)
        if call.result is not None:
            break
    return call.result


# The maximum number of callers in ``Access.accepted``.
MAX_ACCEPTED = 1000


class Access(NamedTuple):
    """Who may use a server, as far as an event loop can decide it; cached with the catalog."""

    is_open: bool
    """Whether the server and each of its components are open to all."""
    needs_only_accounts: bool
    """Whether the cached data of a caller is enough to decide."""
    may_sign_in: bool
    backends: tuple[str, ...]
    """The authentication backends of the server."""
    accepted: dict[CallerKey, Account]
    """Callers that may connect, each with the account that was confirmed when this was decided; at
    most ``MAX_ACCEPTED``, and dropped with the catalog."""
    permission: Any
    scopes: tuple[str, ...]
    settings: Settings

    def authorize(self, server: Server, key: CallerKey, principal: Principal) -> None:
        """Check that a cached caller may connect; repeat this when its account is confirmed again.

        Raises:
            AccessRefused: see ``authorize_connection``.
        """
        account = principal.account
        if account is None or self.accepted.get(key) is not account:
            authorize_connection(server, principal)
            if account is not None:
                if len(self.accepted) >= MAX_ACCEPTED:
                    self.accepted.clear()
                self.accepted[key] = account


def access_to(server: Server, catalog: Catalog) -> Access:
    """Return who may use a server."""
    access: Access | None = catalog.access
    if (
        access is not None
        and access.permission is server.permission
        and access.scopes is server.scopes
        and access.settings is get_settings()
    ):
        return access
    backends = server.auth
    guards = (*parse_permissions(server.permission), *catalog.extra_permissions)
    access = catalog.access = Access(
        is_open=(
            catalog.is_enabled
            and not catalog.has_permissions
            and is_open(server)
            and BEARER_BACKENDS.issuperset(backends)
        ),
        needs_only_accounts=all(map(needs_only_account, guards)),
        may_sign_in=not SESSION_BACKENDS.issuperset(backends),
        backends=backends,
        accepted={},
        permission=server.permission,
        scopes=server.scopes,
        settings=get_settings(),
    )
    return access
