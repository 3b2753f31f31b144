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
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

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
from mcp_django.conf import get_settings
from mcp_django.core.component import Component
from mcp_django.core.resource import ResourceTemplate
from mcp_django.core.tool import Tool
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    Busy,
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
    error_code_in,
)
from mcp_django.protocol.text import clip, escape_invisible
from mcp_django.schema.arguments import UnknownNameProblem, ValidationProblem
from mcp_django.schema.secrets import LOG, mask_secrets

if TYPE_CHECKING:
    from mcp_django.execution.call import Call
    from mcp_django.execution.query_limits import QueryUsage
    from mcp_django.execution.telemetry import Operation

COMPONENT_METHODS = {"tools/call": "tool", "resources/read": "resource", "prompts/get": "prompt"}
"""The methods that use a component, with its kind for when the component is not known."""

MAX_PROBLEMS = 20
MAX_PATH = 120


class CallRecord:
    """The data of one use of a component; nothing is logged before ``begin`` is called."""

    # Every request creates an entry, whatever its method, so ``__init__`` sets little.
    __slots__ = (
        "_clock",
        "_elapsed",
        "_pending",
        "arguments",
        "at",
        "component",
        "envelope",
        "error_outcome",
        "kind",
        "name",
        "operation",
        "origin",
        "pk",
        "preset_outcome",
        "principal",
        "problems",
        "server",
        "session",
        "size",
        "transport",
        "uri",
        "usage",
        "was_asked",
    )

    kind: str
    at: datetime
    server: Any
    principal: Principal
    envelope: Envelope
    session: str
    origin: tuple[str, str]
    transport: str

    def __init__(self) -> None:
        self._pending: list[None] = []
        self.operation: Operation | None = None

    @property
    def is_open(self) -> bool:
        """Whether a record is still to be written."""
        return bool(self._pending)

    @property
    def is_written(self) -> bool:
        """Whether a record was begun and has been written."""
        return not self._pending and hasattr(self, "kind")

    # The request ----------------------------------------------------------------------------------

    def begin(self, call: Call) -> None:
        """Begin a record, if the request is for a component and calls are logged."""
        kind = COMPONENT_METHODS.get(call.request.method)
        if kind is None or not get_settings().log_calls:
            return
        self.kind = kind
        self.at = timezone.now()
        self._clock: float | None = time.perf_counter()
        self._elapsed = 0.0
        self.server = call.server
        self.principal = call.principal
        self.envelope = call.envelope
        row = getattr(call.session, "row", None)
        self.session = row.digest if row is not None else ""
        self.origin = (call.origin, call.acting_user)
        self.transport = call.transport
        self.component: Component | None = None
        self.name = self.uri = ""
        self.arguments: bytes | Mapping[str, Any] = {}
        self.problems: list[str] = []
        self.preset_outcome: CallOutcome | None = None
        self.error_outcome: CallOutcome | None = None
        self.usage: QueryUsage | None = None
        self.pk: int | None = None
        self.size: int | None = None
        self.was_asked = False
        # Several threads may end the record; the one that pops this writes it.
        self._pending.append(None)

    def discard(self) -> None:
        """Discard the record, since the request is handled again elsewhere."""
        self._pending.clear()

    # The component --------------------------------------------------------------------------------

    def note_name(self, name: str) -> None:
        """Note the requested name, which may not exist."""
        if self._pending:
            self.name = name
            self.preset_outcome = CallOutcome("unknown")

    def note_component(self, component: Component, *, uri: str = "") -> None:
        """Note the component, even if the caller is told that it does not exist."""
        if self.operation is not None:
            self.operation.note_component(component, uri)
        if self._pending:
            self.component = component
            self.uri = uri

    def note_hidden_by(self, permission: object) -> None:
        """Note for the site owner which permission hides the component from the caller."""
        if self._pending:
            self.preset_outcome = CallOutcome("unknown", None, f"hidden by {permission}")

    def note_authorized(self, given: bytes | Mapping[str, Any]) -> None:
        """Note that the caller is authorized, and the arguments."""
        if self.operation is not None:
            self.operation.note_authorized(given)
        if self._pending:
            self.preset_outcome = None
            self.arguments = given

    def note_invalid_arguments(self, problems: Iterable[ValidationProblem]) -> None:
        """Note that the arguments are invalid, and where."""
        if self._pending:
            self.preset_outcome = CallOutcome("invalid")
            self.problems = [
                clip(mask_secrets(_problem_path(one)), limit=MAX_PATH)
                for one in islice(problems, MAX_PROBLEMS)
            ]

    def preset(self, outcome: str, reason: str = "") -> None:
        """Note an outcome that cannot be derived from the result or error of the call.

        ``outcome`` is a value of ``Call.Outcome``, such as ``limited``, ``refused``, ``timeout``.
        """
        if self._pending:
            self.preset_outcome = CallOutcome(outcome, None, reason)

    # The run --------------------------------------------------------------------------------------

    @property
    def writes(self) -> bool:
        """Whether the call may change data, so that its record is written before it runs."""
        return isinstance(self.component, Tool) and not self.component.read_only

    def note_usage(self, usage: QueryUsage) -> None:
        """Note the object that counts the database use of the call."""
        if self._pending:
            self.usage = usage

    def note_exception(self, exc: Exception) -> None:
        """Note the exception of the component's function, before it is converted to a result."""
        if self.operation is not None:
            self.operation.note_exception(exc)
        if self._pending:
            self.error_outcome = outcome_of_failure(exc)

    def resume(self) -> None:
        """Start the clock: the call runs, or continues with the client's answers."""
        if self._clock is None:
            self._clock = time.perf_counter()

    def pause(self) -> None:
        """Stop the clock: waiting for the client does not count as run time."""
        self._elapsed += self._since()
        self._clock = None
        self.was_asked = True

    @property
    def ms(self) -> float:
        """How long the call has run, in milliseconds."""
        return round((self._elapsed + self._since()) * 1000, 3)

    def _since(self) -> float:
        return 0.0 if self._clock is None else time.perf_counter() - self._clock

    def claim_end(self) -> bool:
        """Claim the end of the record; true for exactly one caller, who writes it."""
        try:
            self._pending.pop()
        except IndexError:
            return False
        return True

    def __del__(self) -> None:
        if self._pending:
            # Imported here, since ``call_log`` imports this module.
            from mcp_django.execution.call_log import log_abandoned

            log_abandoned(self)


def _problem_path(problem: ValidationProblem) -> str:
    if not isinstance(problem, UnknownNameProblem):
        return problem.path
    return f"{problem.path}.{problem.name}" if problem.path else problem.name


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


class CallOutcome(NamedTuple):
    """The outcome of a call, the code of its error and the reason."""

    outcome: str
    code: int | None = None
    reason: str = ""


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
    # Imported here, since ``results`` imports this module.
    from mcp_django.execution.results import CallTimedOut

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


def begin_columns(call_record: CallRecord) -> dict[str, Any]:
    """Return the columns that are known before the function runs."""
    principal, envelope = call_record.principal, call_record.envelope
    component = call_record.component
    client = envelope.client_info or {}
    origin, acting = call_record.origin
    user = principal.user
    return {
        "at": call_record.at,
        "server": _clean_text(call_record.server.name, 100),
        "kind": component.kind if component is not None else call_record.kind,
        "component": _clean_text(
            component.key if component is not None else _requested_name(call_record), 500
        ),
        "origin": origin,
        "user_key": principal.user_key[:128],
        "user_name": _clean_text(user.get_username(), 255) if principal.is_authenticated else "",
        "acting_user": _clean_text(acting, 255),
        "client_id": _clean_text(principal.client_id, 255),
        "client": _client_label(client) or _clean_text(principal.client_name, 255),
        "revision": envelope.revision.version,
        "transport": call_record.transport,
        "session": call_record.session,
        "trace_id": _trace_id(call_record),
        "writes": call_record.writes,
        "outcome": STARTED.outcome,
        **_arguments(call_record),
    }


def end_columns(call_record: CallRecord, meaning: CallOutcome) -> dict[str, Any]:
    """Return the columns that are known at the end of the call."""
    code, revision = meaning.code, call_record.envelope.revision
    return {
        "outcome": meaning.outcome,
        "code": None if code is None else error_code_in(revision, code),
        "reason": _clean_text(
            "; ".join(filter(None, (_alias_note(call_record), meaning.reason))), 255
        ),
        "ms": call_record.ms,
        "rows": call_record.usage.rows if call_record.usage is not None else None,
        "bytes": call_record.size,
        "problems": [escape_invisible(one, lines=False) for one in call_record.problems],
    }


def _arguments(call_record: CallRecord) -> dict[str, Any]:
    values = decode_arguments(call_record.arguments)
    found: dict[str, Any] = {
        "argument_names": argument_names(values),
        "arguments_digest": arguments_digest(values),
        "arguments": None,
        "uri": "",
    }
    component = call_record.component
    if component is not None and logs_arguments(component, call_record.server):
        found["arguments"] = component.mask(values)
        if call_record.uri and not component.has_secrets:
            found["uri"] = _clean_text(call_record.uri, 2000)
    return found


def _alias_note(call_record: CallRecord) -> str:
    """Return a note with the alias that the call used, as declared and so without values."""
    component = call_record.component
    if component is None or not component.aliases or call_record.name == component.key:
        return ""
    found = [one for one in component.aliases if one == call_record.name]
    if (
        isinstance(component, ResourceTemplate)
        and component.template.match(call_record.name) is None
    ):
        found = [
            one.template
            for one in component.alias_templates
            if one.match(call_record.name) is not None
        ]
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
    return _clean_text(f"{name} {version}" if isinstance(version, str) else name, 255)


def _clean_text(text: str, limit: int) -> str:
    # Cut twice: a name may be megabytes long, and a secret that is cut off is not recognized.
    return _clean_start(text[: 4 * limit], limit) if text else ""


def _clean_start(text: str, limit: int) -> str:
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


def decode_arguments(arguments: bytes | Mapping[str, Any]) -> Any:
    """Return the arguments that a client sent; ``None`` if they are not valid JSON."""
    if not isinstance(arguments, bytes):
        return dict(arguments)
    try:
        return msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return None


def argument_names(values: Any) -> list[str]:
    """Return the names of the arguments."""
    found = list(values)[:MAX_NAMES] if isinstance(values, dict) else []
    return [_clean_start(name[: LOG.text], LOG.name) for name in found]


def arguments_digest(values: Any) -> str:
    """Return a digest of the arguments that does not depend on their order.

    It is keyed, since otherwise a short argument could be guessed from its digest.
    """
    try:
        text = _canonical(values)
    except (ValueError, TypeError, RecursionError):
        return ""
    return hmac.digest(_key(settings.SECRET_KEY), text, "sha256").hex()


@lru_cache(maxsize=2)
def _key(secret: str | bytes) -> bytes:
    """Return the key that ``salted_hmac`` would derive on every call."""
    return hashlib.sha256(SALT.encode() + force_bytes(secret)).digest()


def logs_arguments(component: Component, server: Any) -> bool:
    """Return whether the values of the arguments are logged."""
    wanted = component.log_arguments
    return bool(server.log_arguments if wanted is None else wanted)
