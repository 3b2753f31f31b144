"""The life of a request, from its arrival to its function. Read this module first.

``IncomingRequest.serve`` implements it for every transport. ``admit`` passes the call to the
handler of its method, which returns a result, a stream (``Subscription``) or the wait for a task
(``TaskWait``); or it prepares the call of a component's function, which the transport then runs
(``invoke``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Catalog, Server
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, InvalidParams, MethodNotFound, TooManyRequests
from mcp_django.execution import call_log, quotas, telemetry
from mcp_django.execution.call import Call, Channel, HandlerResult
from mcp_django.execution.call_record import COMPONENT_METHODS
from mcp_django.execution.handlers import listing, prompts, resources, session, tools
from mcp_django.execution.plan import admit_component, plan_for
from mcp_django.execution.policy import admit_caller
from mcp_django.execution.results import encode_response
from mcp_django.protocol.envelope import Envelope
from mcp_django.protocol.jsonrpc import Request, read_params
from mcp_django.protocol.methods import LIST_METHODS, REQUESTS, REQUESTS_AT, Method
from mcp_django.storage.sessions import ClientSession

if TYPE_CHECKING:
    from mcp_django.execution.otel import Instruments

Handler = Callable[[Call], HandlerResult]
Answered = TypeVar("Answered")
"""What a transport answers with."""

# ``mcp_django.tasks`` adds the handlers of the ``tasks/…`` methods.
HANDLERS: dict[str, Handler] = {
    "server/discover": listing.discover,
    "tools/list": tools.list_tools,
    "tools/call": partial(admit_component, tools.CALL),
    "resources/list": resources.list_resources,
    "resources/templates/list": resources.list_templates,
    "resources/read": partial(admit_component, resources.READ),
    "prompts/list": prompts.list_prompts,
    "skills/list": resources.list_skills,
    "skills/get": resources.get_skill,
    "resources/directory/read": resources.read_directory,
    "prompts/get": partial(admit_component, prompts.GET),
    "completion/complete": prompts.complete,
    "subscriptions/listen": session.listen,
    "ping": session.ping,
    "logging/setLevel": session.set_level,
    "resources/subscribe": session.subscribe,
    "resources/unsubscribe": session.unsubscribe,
}

# Methods that run the site's own functions, or wait for one. All other methods are short.
WORK_METHODS = frozenset(
    {
        "tools/call",
        "resources/list",
        "resources/read",
        "prompts/get",
        "completion/complete",
        "tasks/result",
    }
)


Opened: TypeAlias = bytes | Call
"""The response to a request, or the call that remains to be run for it."""


def opened_by(call: Call) -> Opened:
    """Return the response to an admitted call, or the call if it remains to be run."""
    return encode_response(call, call.result) if isinstance(call.result, dict) else call


class NeedsThread(Exception):
    """A request cannot be served on an event loop, or not before something is looked up."""

    def __init__(
        self,
        *,
        prepared: Call | None = None,
        refused: AccessRefused | None = None,
        unknown: Any = None,
    ) -> None:
        super().__init__()
        self.prepared = prepared
        """The call of the request, if only its admission needs a thread."""
        self.refused = refused
        """Why the call was rejected, which a thread may record."""
        self.unknown = unknown
        """The key of a caller or session that has to be looked up first."""


class IncomingRequest(ABC, Generic[Answered]):
    """A request, or another message, from its arrival to its answer.

    A subclass implements what differs for one way to reach the server: an HTTP request in a thread
    or on an event loop, or a message on a connection.
    """

    __slots__ = ()

    server: Server
    catalog: Catalog | None
    """The catalog with which the caller was authorized, if the call must use the same one."""
    is_on_loop = False
    """Whether the request is served on an event loop, which must not wait."""

    def serve(self, prepared: Call | None = None) -> Answered:
        """Return the answer to the request, or how it is answered.

        This is the life of every request, on every transport and at every revision, up to the
        function that it calls. The function runs afterwards: in this thread, in another thread, on
        an event loop, or as a task. ``prepared`` is the call of the request, if an event loop found
        it and only its admission needs a thread.

        Raises:
            NeedsThread, SynchronousOnlyOperation: an event loop cannot serve the request.
            Exception: the request is rejected, and the transport does not answer that by itself.
        """
        call = prepared
        try:
            if call is None:
                # Who sends it, and may it connect? Hidden and unknown servers look the same.
                principal = self.authorize()
                # Which revision does it use, and which session does it belong to? This step answers
                # what is not a call: ``initialize``, notifications, batches, GET and DELETE.
                opened = self.open(principal)
                if not isinstance(opened, Call):
                    return opened
                call = opened
                if self.is_on_loop:
                    check_loop(call)
            # May the caller use the component? Are its arguments valid, is a rate exceeded, who has
            # to approve it? The handler of the method decides, in the order of its plan.
            admit(call)
            # Is it answered with a document, with a stream of events, or when a task has ended?
            return self.answer(call)
        except Exception as exc:
            refusal = self.refuse(exc, call)
            if refusal is None:
                raise
            return refusal

    @abstractmethod
    def authorize(self) -> Principal:
        """Return the caller, if it may connect (``policy.admit_caller``).

        Raises:
            AccessRefused: the caller has to authenticate, or may not connect.
            Busy: this cannot be looked up now.
        """

    @abstractmethod
    def open(self, principal: Principal) -> Call | Answered:
        """Return the call of the request, or the answer to what is not a call."""

    @abstractmethod
    def answer(self, call: Call) -> Answered:
        """Return the answer to an admitted call, or how it is answered.

        Raises:
            MCPError: the caller has too many open streams, for example.
        """

    @abstractmethod
    def refuse(self, exc: Exception, call: Call | None) -> Answered | None:
        """Return the answer to a request that is rejected, ``None`` to raise the exception.

        ``call`` is ``None`` if the request was rejected before it became a call.
        """

    def call(
        self,
        channel: Channel,
        request: Request,
        envelope: Envelope,
        principal: Principal,
        *,
        session: ClientSession | None = None,
        can_ask: bool = False,
    ) -> Call:
        """Return the call of a request that arrived in this way."""
        return Call(
            server=self.server,
            request=request,
            envelope=envelope,
            principal=principal,
            channel=channel,
            session=session,
            can_ask=can_ask,
            catalog=self.catalog,
        )


# The methods that use a component, which has a plan.
METHODS_WITH_PLANS = {method.name: method for method in (tools.CALL, resources.READ, prompts.GET)}
# Methods that are checked for every call: lists must be current, and an extension must be in use.
CHECKED = frozenset(
    method.name for method in REQUESTS.values() if method.is_list or method.extension
)
# Other methods that never need the database or the cache.
LOOP_METHODS = frozenset({"server/discover", "ping"})


def check_loop(call: Call) -> None:
    """Check that the call can be admitted and run on an event loop.

    Only for a call whose ``catalog`` is set, and whose caller does not have to be looked up.

    Raises:
        NeedsThread: the call needs a thread.
    """
    method = METHODS_WITH_PLANS.get(call.request.method)
    if method is None:
        name = call.request.method
        is_short = name in LOOP_METHODS or (name in LIST_METHODS and listing.has_page(call))
    else:
        if not call.name:
            # Requests of a session name the component only in their parameters.
            try:
                lenient = not call.envelope.revision.stateless
                params = read_params(call.request.params, method.params, lenient=lenient)
            except InvalidParams:
                # The admission rejects it.
                return
            call.name = getattr(params, method.name_parameter)
        call.plan = plan_for(call, method, call.name)
        is_short = call.plan.where == "loop"
    if not is_short:
        raise NeedsThread(prepared=call)


def admit(call: Call, *, is_observed: bool = False) -> None:
    """Decide everything before a function runs: set ``call.result``, or prepare the call.

    Raises:
        MethodNotFound: the request's revision, or the server, does not have this method.
        MCPError: the handler rejects the request.
        AccessRefused: the caller has to authenticate, or needs another scope.
        Busy: the admin overrides of the server are not loaded, and cannot be read.
    """
    if not is_observed:
        instruments = telemetry.load_instruments() if get_settings().telemetry else None
        # Without an SDK there is only something to do if the client sent a trace context.
        if instruments is not None and (call.envelope.trace or not instruments.is_noop):
            _admit_observed(call, instruments)
            return
    name, version = call.request.method, call.envelope.revision.version
    method = REQUESTS_AT[version].get(name)
    if method is None or name not in HANDLERS:
        raise MethodNotFound(f"No method {name[:80]!r} in {version}.")
    record = call.record
    if name in COMPONENT_METHODS:
        call_log.begin(call, record)
    try:
        catalog = call.catalog
        if catalog is None or name in CHECKED or method.capability not in catalog.capabilities:
            _check_method(call, method)
        call.result = HANDLERS[name](call)
    except SynchronousOnlyOperation:
        # The request is admitted again in a thread.
        record.discard()
        raise
    except Exception as exc:
        call.result = None
        if isinstance(exc, TooManyRequests):
            record.preset("limited")
            # ``None`` unless ``THROTTLE_AS`` requires a result.
            call.result = quotas.limited_tool_result(call.request, exc)
        if call.result is None:
            call_log.end_rejected(record, exc)
            raise
    if isinstance(call.result, dict):
        call_log.end_answered(call, call.result)


def _admit_observed(call: Call, instruments: Instruments) -> None:
    """Admit a call within a span."""
    operation = telemetry.start_operation(call, instruments)
    with operation.activate():
        try:
            admit(call, is_observed=True)
        except SynchronousOnlyOperation:
            operation.discard()
            raise
        except Exception as exc:
            operation.end_raised(exc)
            raise
    if call.result is not None:
        # A subscription is acknowledged now; the span does not include how long it lasts.
        operation.end_returned(call.result if isinstance(call.result, dict) else {})


def _check_method(call: Call, method: Method) -> None:
    """Set the current catalog, if the call has none, and check that the server has the method.

    Raises:
        MethodNotFound: the server lacks the capability or extension of the method.
    """
    server = call.server
    if call.catalog is None or (
        method.is_list and call.catalog is not server.fresh_catalog(is_list=True)
    ):
        # ``server/discover`` does not query the database, so that clients can probe; its result
        # names no component.
        if method.name != "server/discover":
            # The connection is authorized again if the catalog changed.
            before = server.catalog
            admit_caller(server, lambda: call.principal, is_list=method.is_list, admitted=before)
        call.catalog = server.catalog
    assert call.catalog is not None
    capabilities, capability = call.catalog.capabilities, method.capability
    is_logging = capability == "logging" and bool(capabilities) and call.channel.can_stream
    if capability and capability not in capabilities and not is_logging:
        raise MethodNotFound(f"This server has no {capability}.")
    if (
        method.extension
        and call.revision.extensions
        and method.extension not in listing.server_extensions(call.server)
    ):
        # A revision without extensions defines the method itself, or not at all.
        raise MethodNotFound(f"This server does not support {method.extension}.")
