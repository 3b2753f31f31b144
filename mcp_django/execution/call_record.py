"""``CallRecord``: the record of one use of a component, from the request to its row.

A ``CallRecord`` is not part of a reference cycle. If a call is never run or is abandoned,
``__del__`` therefore logs its record as soon as the last reference is gone.

The log always gets the names of the arguments and a keyed digest; it gets their values if the site
owner enables that, and never a secret. The recorded reason for an exception contains no argument.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec
from django.conf import settings
from django.core.exceptions import (
    ObjectDoesNotExist,
    PermissionDenied,
    SuspiciousOperation,
    ValidationError,
)
from django.http import Http404
from django.utils import timezone
from django.utils.encoding import force_bytes

from mcp_django.auth.principal import Principal
from mcp_django.components.component import Component
from mcp_django.components.resource import ResourceTemplate
from mcp_django.components.tool import Tool
from mcp_django.conf import get_settings
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    Busy,
    CallTimedOut,
    ElicitationDeclined,
    MCPError,
    NotApproved,
    ToolError,
)
from mcp_django.protocol.envelope import Envelope
from mcp_django.protocol.errors import (
    BUSY,
    FORBIDDEN,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    RATE_LIMITED,
    UNAUTHORIZED,
    URL_ELICITATION_REQUIRED,
)
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.revisions import error_code_in
from mcp_django.protocol.text import clip, escape_invisible
from mcp_django.schema.arguments import UnknownNameProblem, ValidationProblem
from mcp_django.schema.secrets import LOG, mask_secrets
from mcp_django.storage.sessions import ClientSession
from mcp_django.tenants import bound_tenant

COMPONENT_METHODS = {"tools/call": "tool", "resources/read": "resource", "prompts/get": "prompt"}
"""The methods that use a component, with its kind for when the component is not known."""

MAX_PROBLEMS = 20
MAX_PATH = 120


class CallOutcome(NamedTuple):
    """The outcome of a call, the code of its error and the reason."""

    outcome: str
    code: int | None = None
    reason: str = ""


UNKNOWN = CallOutcome("unknown")


class LoggedChannel(Protocol):
    """What a record takes of the channel of a call."""

    transport: str
    origin: str
    acting_user: str


class LoggedCall(Protocol):
    """What a record takes of a call."""

    request: Request
    server: Any
    principal: Principal
    envelope: Envelope
    session: ClientSession | None

    @property
    def channel(self) -> LoggedChannel:
        """How the request came."""


class TracedRequest(Protocol):
    """The span and the duration of a request: an ``Operation`` of ``telemetry``."""

    @property
    def trace_id(self) -> str:
        """The trace id of the span; empty without a trace."""

    def activate(self) -> AbstractContextManager[None]:
        """Return a context manager in which the span is the parent of new spans."""

    def note_component(self, component: Component, name: str) -> None:
        """Note the component, and the name by which it was requested."""

    def note_authorized(self, given: bytes | Mapping[str, Any]) -> None:
        """Note that the caller is authorized, and the arguments."""

    def note_exception(self, exc: Exception) -> None:
        """Note the exception of the component's function."""

    def begin_client_request(self, method: str, request_id: str) -> Any:
        """Begin the span of a request to the client."""

    def end_returned(self, result: Mapping[str, Any], *, is_stateless: bool = True) -> None:
        """End with a result."""

    def end_raised(self, exc: BaseException) -> None:
        """End with an error."""


class DatabaseUsage(Protocol):
    """The database use of a call."""

    rows: int


class CallRecord:
    """The data of one use of a component; nothing is logged before ``begin`` is called."""

    # Every request has a record, whatever its method. These values are those of most of them.
    operation: TracedRequest | None = None
    component: Component | None = None
    about: Identification | None = None
    writes = False
    """Whether the call may change data, so that its record is written before it runs."""
    name = uri = ""
    arguments: bytes | Mapping[str, Any] = b"{}"
    problems: Sequence[str] = ()
    preset_outcome: CallOutcome | None = None
    error_outcome: CallOutcome | None = None
    usage: DatabaseUsage | None = None
    token = ""
    """Of the row that was written, or was to be written, before the run."""
    is_uncertain = False
    """Whether that row may not be stored."""
    size: int | None = None
    was_asked = False
    pending: list[None] = []
    """Not empty while a record is to be written. Several threads may end it; the one that pops the
    member writes it."""
    elapsed = 0.0
    """The seconds that the call ran before it paused."""
    clock: float | None
    """When the call began to run, by ``time.perf_counter()``; ``None`` while it is paused."""

    log_abandoned: ClassVar[Callable[[CallRecord], None]]
    """Logs a call that was abandoned; set by ``call_log``."""

    tenant = ""
    kind: str
    at: datetime
    server: Any
    principal: Principal
    envelope: Envelope
    session: str
    origin: tuple[str, str]
    transport: str

    @property
    def is_written(self) -> bool:
        """Whether a record was begun and has been written."""
        return not self.pending and hasattr(self, "kind")

    # The request ----------------------------------------------------------------------------------

    def begin(self, call: LoggedCall) -> None:
        """Begin a record, if the request is for a component and calls are logged."""
        kind = COMPONENT_METHODS.get(call.request.method)
        if kind is None or not get_settings().log_calls:
            return
        self.kind = kind
        self.tenant = bound_tenant()
        self.at = timezone.now()
        self.clock = time.perf_counter()
        self.server = call.server
        self.principal = call.principal
        self.envelope = call.envelope
        self.session = "" if call.session is None else call.session.digest
        channel = call.channel
        self.origin = (channel.origin, channel.acting_user)
        self.transport = channel.transport
        self.pending = [None]

    def discard(self) -> None:
        """Discard the record, since the request is handled again elsewhere."""
        self.pending = []

    # The component --------------------------------------------------------------------------------

    def note_component(
        self,
        name: str,
        component: Component | None,
        about: Identification | None = None,
    ) -> None:
        """Note the requested name, and the component, even if the caller does not learn of it.

        ``about`` is what ``identify`` returns for the component, if it is known.
        """
        if component is not None and self.operation is not None:
            self.operation.note_component(component, name)
        if self.pending:
            self.name = name
            self.preset_outcome = UNKNOWN
            if component is not None:
                self.component = component
                self.about = about or identify(component, self.server)
                self.writes = self.about.writes
                if self.kind == "resource":
                    self.uri = name

    def note_hidden_by(self, what: object) -> None:
        """Note for the site owner what hides the component, such as a permission."""
        if self.pending:
            self.preset_outcome = CallOutcome("unknown", None, f"hidden by {what}")

    def note_authorized(self, given: bytes | Mapping[str, Any]) -> None:
        """Note that the caller is authorized, and the arguments."""
        if self.operation is not None:
            self.operation.note_authorized(given)
        if self.pending:
            self.preset_outcome = None
            self.arguments = given

    def note_invalid_arguments(self, problems: Iterable[ValidationProblem]) -> None:
        """Note that the arguments are invalid, and where."""
        if self.pending:
            self.preset_outcome = CallOutcome("invalid")
            self.problems = [_clean_path(one) for one in islice(problems, MAX_PROBLEMS)]

    def preset(self, outcome: str, reason: str = "") -> None:
        """Note an outcome that cannot be derived from the result or error of the call.

        ``outcome`` is a value of ``Call.Outcome``, such as ``limited``, ``refused``, ``timeout``.
        """
        if self.pending:
            self.preset_outcome = CallOutcome(outcome, None, reason)

    # The run --------------------------------------------------------------------------------------

    def note_usage(self, usage: DatabaseUsage) -> None:
        """Note the object that counts the database use of the call."""
        if self.pending:
            self.usage = usage

    def note_exception(self, exc: Exception) -> None:
        """Note the exception of the component's function, before it is converted to a result."""
        if self.operation is not None:
            self.operation.note_exception(exc)
        if self.pending:
            self.error_outcome = outcome_of_failure(exc)

    def resume(self) -> None:
        """Start the clock: the call runs, or continues with the client's answers."""
        if self.clock is None:
            self.clock = time.perf_counter()

    def pause(self) -> None:
        """Stop the clock: waiting for the client does not count as run time."""
        if self.clock is not None:
            self.elapsed += time.perf_counter() - self.clock
        self.clock = None
        self.was_asked = True

    def __del__(self) -> None:
        if self.pending:
            self.log_abandoned()


def _clean_path(problem: ValidationProblem) -> str:
    path = problem.path
    if isinstance(problem, UnknownNameProblem):
        path = f"{path}.{problem.name}" if path else problem.name
    return escape_invisible(clip(mask_secrets(path), limit=MAX_PATH), lines=False)


# The outcome of an exception ----------------------------------------------------------------------

REPORTED_EXCEPTIONS = (
    ToolError,
    ElicitationDeclined,
    Http404,
    ObjectDoesNotExist,
    PermissionDenied,
    ValidationError,
    SuspiciousOperation,
)
OUTCOME_BY_CODE = {
    RATE_LIMITED: "limited",
    BUSY: "refused",
    METHOD_NOT_FOUND: "unknown",
    MISSING_CAPABILITY: "refused",
    URL_ELICITATION_REQUIRED: "asked",
    INVALID_PARAMS: "invalid",
    HEADER_MISMATCH: "invalid",
}
# Messages written by this package or by a permission; they contain no arguments.
SAFE_MESSAGE_EXCEPTIONS = (AccessRefused, Busy)


def outcome_before_run(exc: BaseException) -> CallOutcome:
    """Return the outcome of an exception that was raised before the function ran."""
    if isinstance(exc, AccessRefused):
        is_anonymous = isinstance(exc, AuthenticationRequired)
        return CallOutcome("refused", UNAUTHORIZED if is_anonymous else FORBIDDEN, exc.message)
    if isinstance(exc, MCPError):
        return CallOutcome(OUTCOME_BY_CODE.get(exc.code, "refused"), exc.code, _safe_reason(exc))
    if isinstance(exc, asyncio.CancelledError):
        return CallOutcome("cancelled")
    return CallOutcome("failed", None, _safe_reason(exc))


def outcome_of_failure(exc: Exception) -> CallOutcome:
    """Return the outcome of an exception of the component's function."""
    if isinstance(exc, CallTimedOut):
        return CallOutcome("timeout", None, str(exc))
    if isinstance(exc, AccessRefused):
        return CallOutcome("refused", None, exc.message)
    if isinstance(exc, NotApproved):
        return CallOutcome("denied", None, _safe_reason(exc))
    if isinstance(exc, (MCPError, *REPORTED_EXCEPTIONS)):
        return CallOutcome("error", None, _safe_reason(exc))
    return CallOutcome("failed", None, _safe_reason(exc))


def outcome_after_run(exc: BaseException, error_outcome: CallOutcome | None) -> CallOutcome:
    """Return the outcome of an exception after the run; ``error_outcome`` is the function's."""
    if isinstance(exc, asyncio.CancelledError):
        return CallOutcome("cancelled")
    if not isinstance(exc, MCPError):
        return error_outcome or CallOutcome("failed", None, _safe_reason(exc))
    if error_outcome is not None:
        return error_outcome._replace(code=exc.code)
    meaning = outcome_before_run(exc)
    return meaning._replace(outcome="error") if meaning.outcome == "invalid" else meaning


def _safe_reason(exc: Any) -> str:
    """Return the name of an exception, or its message if this package wrote it."""
    is_our_own = isinstance(exc, SAFE_MESSAGE_EXCEPTIONS) and hasattr(exc, "message")
    return exc.message if is_our_own else type(exc).__name__


# The columns of ``Call`` --------------------------------------------------------------------------

STARTED = CallOutcome("started")
_END_OF_HOST = re.compile("[/?#]")


class Identification(NamedTuple):
    """The columns that are the same for all calls of a component on a server."""

    kind: str
    key: str
    writes: bool
    logs_arguments: bool


def identify(component: Component, server: Any) -> Identification:
    """Return what the log says about all calls of a component."""
    return Identification(
        kind=component.kind,
        key=_clean_text(component.key, 500),
        writes=isinstance(component, Tool) and not component.read_only,
        logs_arguments=logs_arguments(component, server),
    )


def columns(call_record: CallRecord, meaning: CallOutcome | None = None) -> dict[str, Any]:
    """Return the columns of the row: all of them, or those before the run without ``meaning``."""
    principal, envelope = call_record.principal, call_record.envelope
    about, component = call_record.about, call_record.component
    client = envelope.client_info
    origin, acting = call_record.origin
    values, names, digest = summarize_arguments(call_record.arguments)
    found = {
        "at": call_record.at,
        "tenant": call_record.tenant,
        "server": _clean(call_record.server.name, 100),
        "kind": about.kind if about else call_record.kind,
        "component": about.key if about else _clean_text(_requested_name(call_record), 500),
        "origin": origin,
        "user_key": principal.user_key[:128],
        "user_name": _clean_text(principal.username, 255),
        "acting_user": _clean_text(acting, 255) if acting else "",
        "client_id": _clean_text(principal.client_id, 255) if principal.client_id else "",
        "client": _client_label(client) if client else "",
        "revision": envelope.revision.version,
        "transport": call_record.transport,
        "session": call_record.session,
        "trace_id": _trace_id(call_record) if envelope.trace or call_record.operation else "",
        "writes": call_record.writes,
        "outcome": STARTED.outcome,
        "argument_names": names,
        "arguments_digest": digest,
        "arguments": None,
        "uri": "",
    }
    if not found["client"] and principal.client_name:
        found["client"] = _clean_text(principal.client_name, 255)
    if about is not None and about.logs_arguments:
        assert component is not None
        found["arguments"] = component.mask(values)
        if call_record.uri and not component.has_secrets:
            found["uri"] = _clean_text(call_record.uri, 2000)
    if meaning is None:
        return found
    found["outcome"], code, reason = meaning
    if component is not None and component.aliases:
        reason = "; ".join(filter(None, (_alias_note(component, call_record.name), reason)))
    usage = call_record.usage
    found["code"] = None if code is None else error_code_in(envelope.revision, code)
    found["reason"] = _clean_text(reason, 255) if reason else ""
    running = 0.0 if call_record.clock is None else time.perf_counter() - call_record.clock
    found["ms"] = round((call_record.elapsed + running) * 1000, 3)
    found["rows"] = None if usage is None else usage.rows
    found["bytes"] = call_record.size
    found["problems"] = list(call_record.problems)
    return found


def _alias_note(component: Component, name: str) -> str:
    """Return a note with the alias that the call used, as declared and so without values."""
    if name == component.key:
        return ""
    found = [one for one in component.aliases if one == name]
    if isinstance(component, ResourceTemplate) and component.template.match(name) is None:
        found = [one.template for one in component.alias_templates if one.match(name) is not None]
    return f"called as {found[0]}" if found else ""


def _trace_id(call_record: CallRecord) -> str:
    """Return the trace id of the call's span, or the client's without a span."""
    known = call_record.operation.trace_id if call_record.operation is not None else ""
    if not call_record.envelope.trace:
        return known
    return known or call_record.envelope.trace.get("traceparent", "--").split("-")[1][:32]


def _requested_name(call_record: CallRecord) -> str:
    """Return the name of an unknown component; of a URI, which may contain values, its start."""
    name = call_record.name
    if call_record.kind != "resource" or getattr(call_record.server, "log_arguments", False):
        return name
    scheme, _, rest = name.partition(":")
    if not rest.startswith("//"):
        return f"{scheme}:…" if rest else name
    host = _END_OF_HOST.split(rest[2:], maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}://{host}" if rest == f"//{host}" else f"{scheme}://{host}/…"


def _client_label(info: Any) -> str:
    """Return the name and version that the client sent, for display only."""
    name, version = info.get("name"), info.get("version")
    if not isinstance(name, str):
        return _clean_text(version, 255) if isinstance(version, str) else ""
    label = f"{name} {version}" if isinstance(version, str) else name
    return _clean(label, 255) if len(label) <= MAX_CACHED_TEXT else _clean_text(label, 255)


def _clean_text(text: str, limit: int) -> str:
    # Cut twice: a name may be megabytes long, and a secret that is cut off is not recognized.
    text = text[: 4 * limit]
    # Names are short and repeated with every call; other texts are not worth a place in the cache.
    return (_clean if len(text) <= MAX_CACHED_TEXT else _clean.__wrapped__)(text, limit)


@lru_cache(maxsize=1024)
def _clean(text: str, limit: int) -> str:
    return clip(escape_invisible(mask_secrets(text), lines=False), limit=limit)


# Arguments in the log -----------------------------------------------------------------------------

SALT = "mcp_django.calls.arguments"
MAX_NAMES = 50
MAX_CACHED_TEXT = 200

_canonical = msgspec.json.Encoder(order="deterministic").encode


class ArgumentSummary(NamedTuple):
    """The arguments of a call, and what the log always says about them."""

    values: Any
    """``None`` if they are not valid JSON."""
    names: list[str]
    digest: str
    """It does not depend on the order of the arguments. It is keyed, since otherwise a short
    argument could be guessed from its digest."""


def summarize_arguments(arguments: bytes | Mapping[str, Any]) -> ArgumentSummary:
    """Return what the log says about the arguments that a client sent."""
    try:
        values = msgspec.json.decode(arguments) if isinstance(arguments, bytes) else {**arguments}
    except (ValueError, RecursionError):
        values = None
    names = tuple(values)[:MAX_NAMES] if isinstance(values, dict) else ()
    is_short = len(arguments) <= MAX_CACHED_TEXT
    shown = (_clean_names if is_short else _clean_names.__wrapped__)(names)
    try:
        text = _canonical(values)
    except (ValueError, TypeError, RecursionError):
        return ArgumentSummary(values, list(shown), "")
    digest = _keyed_digest(settings.SECRET_KEY).copy()
    digest.update(text)
    return ArgumentSummary(values, list(shown), digest.hexdigest())


@lru_cache(maxsize=1024)
def _clean_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_clean_text(name[: LOG.text], LOG.name) for name in names)


@lru_cache(maxsize=2)
def _keyed_digest(secret: str | bytes) -> hmac.HMAC:
    """Return an HMAC with the key that ``salted_hmac`` would derive on every call, to be copied."""
    key = hashlib.sha256(SALT.encode() + force_bytes(secret)).digest()
    return hmac.new(key, digestmod="sha256")


def logs_arguments(component: Component, server: Any) -> bool:
    """Return whether the values of the arguments are logged."""
    wanted = component.log_arguments
    return bool(server.log_arguments if wanted is None else wanted)
