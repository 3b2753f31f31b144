"""``CallRecord``: the record of one use of a component, from the request to its row.

A ``CallRecord`` is not part of a reference cycle. If a call is never run or is abandoned,
``__del__`` therefore has its record logged as soon as the last reference is gone.

The log always gets the names of the arguments and a keyed digest; it gets their values if the site
owner enables that, and never a secret. The recorded reason for an exception contains no argument.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

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
from mcp_django.protocol.revisions import REVISIONS, error_code_in
from mcp_django.protocol.text import clip, escape_invisible
from mcp_django.schema.arguments import UnknownNameProblem, ValidationProblem
from mcp_django.schema.secrets import LOG, mask_secrets
from mcp_django.storage.sessions import ClientSession
from mcp_django.tenants import bound_tenant

COMPONENT_METHODS = {"tools/call": "tool", "resources/read": "resource", "prompts/get": "prompt"}
"""The methods that use a component, with the kind to record if the component is not known."""

MAX_PROBLEMS = 20
MAX_PATH = 120


class CallOutcome(NamedTuple):
    """The outcome of a call, the code of its error and the reason."""

    outcome: str
    code: int | None = None
    reason: str = ""


UNKNOWN = CallOutcome("unknown")


class LoggedChannel(Protocol):
    """The attributes of a call's channel that are recorded."""

    transport: str
    origin: str
    acting_user: str


class LoggedCall(Protocol):
    """The attributes of a call that are recorded."""

    request: Request
    server: Any
    principal: Principal
    envelope: Envelope
    session: ClientSession | None

    @property
    def channel(self) -> LoggedChannel:
        """The channel of the request."""


class TracedRequest(Protocol):
    """The span and the duration of a request: an ``Operation`` of ``telemetry``."""

    @property
    def trace_id(self) -> str:
        """The trace id of the span; empty without a trace."""

    def activate(self) -> AbstractContextManager[None]:
        """Return a context manager in which the span is the parent of new spans."""

    def note_component(self, component: Component, name: str) -> None:
        """Note the component, and the name by which it was requested."""

    def note_authorized(self, arguments: bytes | Mapping[str, Any]) -> None:
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


RecordState: TypeAlias = Literal["off", "open", "storing", "stored", "closed"]
"""The state of a record.

``off``: nothing is logged. ``open``: the row will be written at the end. ``storing``: a first row
was passed to the writer. ``stored``: the first row is stored. ``closed``: the end was passed to
the writer, or is written.
"""


@dataclass(slots=True, eq=False, repr=False)
class CallRecord:
    """The record of one use of a component; nothing is logged before ``begin`` is called."""

    operation: TracedRequest | None = None
    state: RecordState = "off"
    given: Mapping[str, Any] = field(default_factory=dict)
    """The columns that are known from the request."""
    server: Any = None
    component: Component | None = None
    about: Identification | None = None
    writes: bool = False
    """Whether the call may change data, so that its record is written before it runs."""
    name: str = ""
    arguments: bytes | Mapping[str, Any] = b"{}"
    problems: Sequence[str] = ()
    preset_outcome: CallOutcome | None = None
    error_outcome: CallOutcome | None = None
    usage: DatabaseUsage | None = None
    token: str = ""
    """The token of the row that was, or should have been, written before the run."""
    size: int | None = None
    was_asked: bool = False
    elapsed: float = 0.0
    """The seconds that the call ran before it paused."""
    clock: float | None = None
    """When the call began to run, by ``time.perf_counter()``; ``None`` while it is paused."""
    abandon: Callable[[CallRecord], None] | None = None
    """Logs the record of an abandoned call, when the last reference to the record is gone."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, call: LoggedCall, abandon: Callable[[CallRecord], None]) -> None:
        """Begin a record, if the request is for a component and calls are logged."""
        kind = COMPONENT_METHODS.get(call.request.method)
        if kind is None or not get_settings().log_calls:
            return
        principal, envelope, channel = call.principal, call.envelope, call.channel
        self.server = call.server
        self.clock = time.perf_counter()
        acting = channel.acting_user
        trace_id = self.operation.trace_id if self.operation is not None else ""
        if not trace_id and envelope.trace:
            trace_id = envelope.trace.get("traceparent", "--").split("-")[1][:32]
        client = ""
        if client_info := envelope.client_info:
            # For display only, and perhaps not even text.
            name, version = client_info.get("name"), client_info.get("version")
            client = name if isinstance(name, str) else ""
            if isinstance(version, str):
                client = f"{client} {version}" if client else version
        # These columns repeat with each call of a client; long texts are not worth a place in the
        # cache.
        is_short = len(client) <= MAX_CACHED_TEXT
        clean = _clean_columns_of_caller if is_short else _clean_columns_of_caller.__wrapped__
        user, client_id = principal.user_key, principal.client_id
        self.given = {
            **clean(user, principal.username, client_id, principal.client_name, client),
            "at": timezone.now(),
            "tenant": bound_tenant(),
            "server": _clean(call.server.name, 100),
            "kind": kind,
            "origin": channel.origin,
            "acting_user": _clean_text(acting, 255) if acting else "",
            "revision": envelope.revision.version,
            "transport": channel.transport,
            "session": "" if call.session is None else call.session.digest,
            "trace_id": trace_id,
        }
        self.state, self.abandon = "open", abandon

    @property
    def is_open(self) -> bool:
        """Whether the end of the record remains to be written."""
        return self.state not in ("off", "closed")

    def store(self, token: str) -> bool:
        """Note that a first row with the token will be stored; return whether the record is open.

        Another thread may end the record at any time.
        """
        with self._lock:
            if self.is_open:
                self.token, self.state = token, "storing"
            return self.is_open

    def mark_stored(self, *, is_certain: bool) -> bool:
        """Note that the first row is stored, if certain; return whether the record is open."""
        with self._lock:
            if is_certain and self.is_open:
                self.state = "stored"
            return self.is_open

    def close(self) -> bool:
        """Close the record; return whether it was open, so that its end has to be written."""
        with self._lock:
            if not self.is_open:
                return False
            self.state = "closed"
            return True

    def discard(self) -> None:
        """Discard the record, since the request is handled again elsewhere."""
        self.state = "off"

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
        if self.is_open:
            self.name = name
            self.preset_outcome = UNKNOWN
            if component is not None:
                self.component = component
                self.about = about or identify(component, self.server)
                self.writes = self.about.writes

    def note_hidden_by(self, what: object) -> None:
        """Note for the site owner what hides the component, such as a permission."""
        if self.is_open:
            self.preset_outcome = CallOutcome("unknown", None, f"hidden by {what}")

    def note_authorized(self, arguments: bytes | Mapping[str, Any]) -> None:
        """Note that the caller is authorized, and the arguments."""
        if self.operation is not None:
            self.operation.note_authorized(arguments)
        if self.is_open:
            self.preset_outcome = None
            self.arguments = arguments

    def note_invalid_arguments(self, problems: Iterable[ValidationProblem]) -> None:
        """Note that the arguments are invalid, and where."""
        if not self.is_open:
            return
        self.preset_outcome = CallOutcome("invalid")
        paths = []
        for problem in islice(problems, MAX_PROBLEMS):
            path = problem.path
            if isinstance(problem, UnknownNameProblem):
                path = f"{path}.{problem.name}" if path else problem.name
            path = clip(mask_secrets(path), limit=MAX_PATH)
            paths.append(escape_invisible(path, lines=False))
        self.problems = paths

    def preset(self, outcome: str, reason: str = "") -> None:
        """Note an outcome that cannot be derived from the result or error of the call.

        ``outcome`` is a value of ``Call.Outcome``, such as ``limited``, ``refused``, ``timeout``.
        """
        if self.is_open:
            self.preset_outcome = CallOutcome(outcome, None, reason)

    def note_usage(self, usage: DatabaseUsage) -> None:
        """Note the object that counts the database use of the call."""
        if self.is_open:
            self.usage = usage

    def note_exception(self, exc: Exception) -> None:
        """Note the exception of the component's function, before it is converted to a result."""
        if self.operation is not None:
            self.operation.note_exception(exc)
        if self.is_open:
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
        if self.abandon is not None and self.is_open:
            self.abandon(self)


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
    """Return the outcome of an exception after the run.

    ``error_outcome`` is the outcome of the function's own exception, if it raised one.
    """
    if isinstance(exc, asyncio.CancelledError):
        return CallOutcome("cancelled")
    if not isinstance(exc, MCPError):
        return error_outcome or CallOutcome("failed", None, _safe_reason(exc))
    if error_outcome is not None:
        return error_outcome._replace(code=exc.code)
    outcome = outcome_before_run(exc)
    return outcome._replace(outcome="error") if outcome.outcome == "invalid" else outcome


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
    """Return the columns that are the same for all calls of a component."""
    return Identification(
        kind=component.kind,
        key=_clean_text(component.key, 500),
        writes=isinstance(component, Tool) and not component.read_only,
        logs_arguments=logs_arguments(component, server),
    )


def columns(record: CallRecord, outcome: CallOutcome | None = None) -> dict[str, Any]:
    """Return the columns of the row; without ``outcome``, only those known before the run."""
    about, component = record.about, record.component
    values, names, digest = summarize_arguments(record.arguments)
    row = {
        **record.given,
        "component": about.key if about else _clean_text(_requested_name(record), 500),
        "writes": record.writes,
        "outcome": STARTED.outcome,
        "argument_names": names,
        "arguments_digest": digest,
        "arguments": None,
        "uri": "",
    }
    if about is not None:
        if about.logs_arguments:
            assert component is not None
            row["arguments"] = component.mask(values)
            if record.given["kind"] == "resource" and not component.has_secrets:
                row["uri"] = _clean_text(record.name, 2000)
        row["kind"] = about.kind
    if outcome is None:
        return row
    row["outcome"], code, reason = outcome
    if component is not None and component.aliases:
        reason = "; ".join(filter(None, (_alias_note(component, record.name), reason)))
    usage = record.usage
    running = 0.0 if record.clock is None else time.perf_counter() - record.clock
    version = record.given["revision"]
    row["code"] = None if code is None else error_code_in(REVISIONS.get(version), code)
    row["reason"] = _clean_text(reason, 255) if reason else ""
    row["ms"] = round((record.elapsed + running) * 1000, 3)
    row["rows"] = None if usage is None else usage.rows
    row["bytes"] = record.size
    row["problems"] = list(record.problems)
    return row


def _alias_note(component: Component, name: str) -> str:
    """Return a note with the alias that the call used, in its declared form without values."""
    if name == component.key:
        return ""
    used = [alias for alias in component.aliases if alias == name]
    if isinstance(component, ResourceTemplate) and component.template.match(name) is None:
        templates = component.alias_templates
        used = [alias.template for alias in templates if alias.match(name) is not None]
    return f"called as {used[0]}" if used else ""


def _requested_name(record: CallRecord) -> str:
    """Return the name of an unknown component; only the start of a URI, which may have values."""
    name = record.name
    if record.given["kind"] != "resource" or getattr(record.server, "log_arguments", False):
        return name
    scheme, _, rest = name.partition(":")
    if not rest.startswith("//"):
        return f"{scheme}:…" if rest else name
    host = _END_OF_HOST.split(rest[2:], maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}://{host}" if rest == f"//{host}" else f"{scheme}://{host}/…"


@lru_cache(maxsize=1024)
def _clean_columns_of_caller(
    user_key: str, username: str, client_id: str, client_name: str, client: str
) -> Mapping[str, str]:
    return {
        "user_key": user_key[:128],
        "user_name": _clean_text(username, 255),
        "client_id": _clean_text(client_id, 255),
        "client": _clean_text(client or client_name, 255),
    }


def _clean_text(text: str, limit: int) -> str:
    # Cut twice: a name may be megabytes long, and a secret that is cut off is not recognized.
    text = text[: 4 * limit]
    # Names are short and repeated with every call; other texts are not worth a place in the cache.
    return (_clean if len(text) <= MAX_CACHED_TEXT else _clean.__wrapped__)(text, limit)


@lru_cache(maxsize=1024)
def _clean(text: str, limit: int) -> str:
    return clip(escape_invisible(mask_secrets(text), lines=False), limit=limit)


SALT = "mcp_django.calls.arguments"
MAX_NAMES = 50
MAX_CACHED_TEXT = 200

_canonical = msgspec.json.Encoder(order="deterministic").encode


class ArgumentSummary(NamedTuple):
    """The arguments of a call, and what is always logged about them."""

    values: Any
    """``None`` if they are not valid JSON."""
    names: list[str]
    digest: str
    """It does not depend on the order of the arguments. It is keyed, since otherwise a short
    argument could be guessed from its digest."""


def summarize_arguments(arguments: bytes | Mapping[str, Any]) -> ArgumentSummary:
    """Return the arguments that a client sent, with what is always logged about them."""
    try:
        values = msgspec.json.decode(arguments) if isinstance(arguments, bytes) else {**arguments}
    except (ValueError, RecursionError):
        values = None
    names = tuple(values)[:MAX_NAMES] if isinstance(values, dict) else ()
    is_short = len(arguments) <= MAX_CACHED_TEXT
    clean_names = (_clean_names if is_short else _clean_names.__wrapped__)(names)
    try:
        text = _canonical(values)
    except (ValueError, TypeError, RecursionError):
        return ArgumentSummary(values, list(clean_names), "")
    digest = _keyed_digest(settings.SECRET_KEY).copy()
    digest.update(text)
    return ArgumentSummary(values, list(clean_names), digest.hexdigest())


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
    setting = component.log_arguments
    return bool(server.log_arguments if setting is None else setting)
