"""``Entry``: the record of one use of a component, from the request to its row in the call log.

An ``Entry`` is not part of a reference cycle. If a call is never run or is abandoned, ``__del__``
therefore logs its record as soon as the last reference is gone.

The log always gets the names of the arguments and a keyed digest; it gets their values if the site
owner enables that, and never a secret. The recorded reason for an exception contains no argument.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    clip,
    code_in,
)
from mcp_django.protocol.text import one_line, storable
from mcp_django.schema.arguments import Problem, UnknownName
from mcp_django.schema.secrets import HIDDEN, hides_secret, is_secret, without_secrets
from mcp_django.schema.structure import Path, Schema

if TYPE_CHECKING:
    from mcp_django.execution.call import Incoming
    from mcp_django.execution.query_limits import Spending
    from mcp_django.execution.telemetry import Operation

KINDS = {"tools/call": "tool", "resources/read": "resource", "prompts/get": "prompt"}
"""The methods that use a component, with its kind for when the component is not known."""

MAX_PROBLEMS = 20
MAX_PATH = 120


class Entry:
    """The data of one use of a component; nothing is logged before ``open`` is called."""

    # Every request creates an entry, whatever its method, so ``__init__`` sets little.
    __slots__ = (
        "_clock",
        "_ends",
        "_spent",
        "at",
        "cause",
        "component",
        "envelope",
        "given",
        "kind",
        "mark",
        "name",
        "operation",
        "origin",
        "pk",
        "principal",
        "problems",
        "server",
        "session",
        "size",
        "spending",
        "transport",
        "uri",
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
        self._ends: list[None] = []
        self.operation: Operation | None = None

    @property
    def is_open(self) -> bool:
        """Whether a record is still to be written."""
        return bool(self._ends)

    @property
    def is_over(self) -> bool:
        """Whether a record was begun and has been written."""
        return not self._ends and hasattr(self, "kind")

    # The request --------------------------------------------------------------------------------

    def open(self, incoming: Incoming) -> None:
        """Begin a record, if the request is for a component and calls are logged."""
        kind = KINDS.get(incoming.request.method)
        if kind is None or not get_settings().log_calls:
            return
        self.kind = kind
        self.at = timezone.now()
        self._clock: float | None = time.perf_counter()
        self._spent = 0.0
        self.server = incoming.server
        self.principal = incoming.principal
        self.envelope = incoming.envelope
        row = getattr(incoming.session, "row", None)
        self.session = row.digest if row is not None else ""
        self.origin = (incoming.origin, incoming.acting)
        self.transport = incoming.transport
        self.component: Component | None = None
        self.name = self.uri = ""
        self.given: bytes | Mapping[str, Any] = {}
        self.problems: list[str] = []
        self.mark: Meaning | None = None
        self.cause: Meaning | None = None
        self.spending: Spending | None = None
        self.pk: int | None = None
        self.size: int | None = None
        self.was_asked = False
        # Several threads may end the record; the one that pops this writes it.
        self._ends.append(None)

    def forget(self) -> None:
        """Discard the record, since the request is handled again elsewhere."""
        self._ends.clear()

    # The component ------------------------------------------------------------------------------

    def wants(self, name: str) -> None:
        """Note the requested name, which may not exist."""
        if self._ends:
            self.name = name
            self.mark = Meaning("unknown")

    def found(self, component: Component, *, uri: str = "") -> None:
        """Note the component, even if the caller is told that it does not exist."""
        if self.operation is not None:
            self.operation.found(component, uri)
        if self._ends:
            self.component = component
            self.uri = uri

    def hidden_by(self, guard: object) -> None:
        """Note for the site owner which permission hides the component from the caller."""
        if self._ends:
            self.mark = Meaning("unknown", None, f"hidden by {guard}")

    def admitted(self, given: bytes | Mapping[str, Any]) -> None:
        """Note that the caller is authorized, and the arguments."""
        if self.operation is not None:
            self.operation.admitted(given)
        if self._ends:
            self.mark = None
            self.given = given

    def wrong(self, problems: Iterable[Problem]) -> None:
        """Note that the arguments are invalid, and where."""
        if self._ends:
            self.mark = Meaning("invalid")
            self.problems = [
                clip(without_secrets(_place(one)), limit=MAX_PATH)
                for one in islice(problems, MAX_PROBLEMS)
            ]

    def refuse(self, outcome: str, reason: str = "") -> None:
        """Note an outcome that cannot be derived from the result or error of the call.

        ``outcome`` is a value of ``Call.Outcome``, such as ``limited``, ``refused``, ``timeout``.
        """
        if self._ends:
            self.mark = Meaning(outcome, None, reason)

    # The run ------------------------------------------------------------------------------------

    @property
    def writes(self) -> bool:
        """Whether the call may change data, so that its record is written before it runs."""
        return isinstance(self.component, Tool) and not self.component.read_only

    def governed_by(self, spending: Spending) -> None:
        """Note the object that counts the database use of the call."""
        if self._ends:
            self.spending = spending

    def failed(self, exc: Exception) -> None:
        """Note the exception of the component's function, before it is converted to a result."""
        if self.operation is not None:
            self.operation.failed(exc)
        if self._ends:
            self.cause = failure(exc)

    def resume(self) -> None:
        """Start the clock: the call runs, or continues with the client's answers."""
        if self._clock is None:
            self._clock = time.perf_counter()

    def pause(self) -> None:
        """Stop the clock: waiting for the client does not count as run time."""
        self._spent += self._since()
        self._clock = None
        self.was_asked = True

    @property
    def ms(self) -> float:
        """How long the call has run, in milliseconds."""
        return round((self._spent + self._since()) * 1000, 3)

    def _since(self) -> float:
        return 0.0 if self._clock is None else time.perf_counter() - self._clock

    def take_end(self) -> bool:
        """Claim the end of the record; true for exactly one caller, who writes it."""
        try:
            self._ends.pop()
        except IndexError:
            return False
        return True

    def __del__(self) -> None:
        if self._ends:
            # Imported here, since ``call_log`` imports this module.
            from mcp_django.execution.call_log import given_up

            given_up(self)


def _place(problem: Problem) -> str:
    if not isinstance(problem, UnknownName):
        return problem.path
    return f"{problem.path}.{problem.name}" if problem.path else problem.name


# The outcome of an exception ----------------------------------------------------------------------

ANSWERS = (
    ToolError,
    ElicitationDeclined,
    Http404,
    ObjectDoesNotExist,
    PermissionDenied,
    ValidationError,
    SuspiciousOperation,
)
BY_CODE = {
    RATE_LIMITED: "limited",
    BUSY: "refused",
    METHOD_NOT_FOUND: "unknown",
    MISSING_CAPABILITY: "refused",
    URL_ELICITATION_REQUIRED: "asked",
    INVALID_PARAMS: "invalid",
    HEADER_MISMATCH: "invalid",
}
# Messages written by this package or by a permission; they contain no arguments.
SAYS_ENOUGH = (AccessRefused, Busy)


class Meaning(NamedTuple):
    """The outcome of a call, the code of its error and the reason."""

    outcome: str
    code: int | None = None
    reason: str = ""


def before(exc: BaseException) -> Meaning:
    """Return the outcome of an exception that was raised before the function ran."""
    if isinstance(exc, AccessRefused):
        is_unknown = isinstance(exc, AuthenticationRequired)
        return Meaning("refused", UNAUTHORIZED if is_unknown else FORBIDDEN, exc.message)
    if isinstance(exc, MCPError):
        return Meaning(BY_CODE.get(exc.code, "refused"), exc.code, _told(exc))
    if isinstance(exc, asyncio.CancelledError):
        return Meaning("cancelled")
    return Meaning("failed", None, _told(exc))


def failure(exc: Exception) -> Meaning:
    """Return the outcome of an exception of the component's function."""
    # Imported here, since ``results`` imports this module.
    from mcp_django.execution.results import CallTimedOut

    if isinstance(exc, CallTimedOut):
        return Meaning("timeout", None, str(exc))
    if isinstance(exc, AccessRefused):
        return Meaning("refused", None, exc.message)
    if isinstance(exc, NotApproved):
        return Meaning("denied", None, _told(exc))
    if isinstance(exc, (MCPError, *ANSWERS)):
        return Meaning("error", None, _told(exc))
    return Meaning("failed", None, _told(exc))


def after(exc: BaseException, cause: Meaning | None) -> Meaning:
    """Return the outcome of an exception after the run; ``cause`` is that of the function."""
    if isinstance(exc, asyncio.CancelledError):
        return Meaning("cancelled")
    if not isinstance(exc, MCPError):
        return cause or Meaning("failed", None, _told(exc))
    if cause is not None:
        return cause._replace(code=exc.code)
    meaning = before(exc)
    return meaning._replace(outcome="error") if meaning.outcome == "invalid" else meaning


def _told(exc: Any) -> str:
    """Return the name of an exception, or its message if this package wrote it."""
    is_our_own = isinstance(exc, SAYS_ENOUGH) and hasattr(exc, "message")
    return exc.message if is_our_own else type(exc).__name__


# The columns of ``Call`` --------------------------------------------------------------------------

STARTED = Meaning("started")
_END_OF_HOST = re.compile("[/?#]")


def begun(entry: Entry) -> dict[str, Any]:
    """Return the columns that are known before the function runs."""
    principal, envelope = entry.principal, entry.envelope
    component = entry.component
    client = envelope.client_info or {}
    origin, acting = entry.origin
    user = principal.user
    return {
        "at": entry.at,
        "server": _text(entry.server.name, 100),
        "kind": component.kind if component is not None else entry.kind,
        "component": _text(component.key if component is not None else _asked_for(entry), 500),
        "origin": origin,
        "user_key": principal.user_key[:128],
        "user_name": _text(user.get_username(), 255) if principal.is_authenticated else "",
        "acting_user": _text(acting, 255),
        "client_id": _text(principal.client_id, 255),
        "client": _client(client) or _text(principal.client_name, 255),
        "revision": envelope.revision.version,
        "transport": entry.transport,
        "session": entry.session,
        "trace_id": _trace_id(entry),
        "writes": entry.writes,
        "outcome": STARTED.outcome,
        **_arguments(entry),
    }


def ended(entry: Entry, meaning: Meaning) -> dict[str, Any]:
    """Return the columns that are known at the end of the call."""
    code, revision = meaning.code, entry.envelope.revision
    return {
        "outcome": meaning.outcome,
        "code": None if code is None else code_in(revision, code),
        "reason": _text("; ".join(filter(None, (_former_name(entry), meaning.reason))), 255),
        "ms": entry.ms,
        "rows": entry.spending.rows if entry.spending is not None else None,
        "bytes": entry.size,
        "problems": [one_line(one) for one in entry.problems],
    }


def _arguments(entry: Entry) -> dict[str, Any]:
    values = read(entry.given)
    found: dict[str, Any] = {
        "argument_names": names(values),
        "arguments_digest": digest(values),
        "arguments": None,
        "uri": "",
    }
    component = entry.component
    if component is not None and are_logged(component, entry.server):
        found["arguments"] = shown(values, component)
        if entry.uri and not has_secrets(component):
            found["uri"] = _text(entry.uri, 2000)
    return found


def _former_name(entry: Entry) -> str:
    """Return a note with the alias that the call used, as declared and so without values."""
    component = entry.component
    if component is None or not component.aliases or entry.name == component.key:
        return ""
    found = [one for one in component.aliases if one == entry.name]
    if isinstance(component, ResourceTemplate) and component.template.match(entry.name) is None:
        found = [one.template for one in component.former if one.match(entry.name) is not None]
    return f"called as {found[0]}" if found else ""


def _trace_id(entry: Entry) -> str:
    """Return the trace id of the call's span, or the client's without a span."""
    known = entry.operation.trace_id if entry.operation is not None else ""
    return known or entry.envelope.trace.get("traceparent", "--").split("-")[1][:32]


def _asked_for(entry: Entry) -> str:
    """Return the name of an unknown component; of a URI, which may contain values, its start."""
    name = entry.name
    if entry.kind != "resource" or getattr(entry.server, "log_arguments", False):
        return name
    scheme, _, rest = name.partition(":")
    if not rest.startswith("//"):
        return f"{scheme}:…" if rest else name
    host = _END_OF_HOST.split(rest[2:], maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}://{host}" if rest == f"//{host}" else f"{scheme}://{host}/…"


def _client(info: Any) -> str:
    """Return the name and version that the client sent, for display only."""
    said = [info.get("name"), info.get("version")]
    return _text(" ".join(one for one in said if isinstance(one, str)), 255)


def _text(text: str, limit: int) -> str:
    # Cut twice: a name may be megabytes long, and a secret that is cut off is not recognized.
    return clip(one_line(without_secrets(text[: 4 * limit])), limit=limit)


# Arguments in the log -----------------------------------------------------------------------------

SALT = "mcp_django.calls.arguments"
MAX_NAMES = 50
MAX_NAME = 80
MAX_TEXT = 500
MAX_MEMBERS = 50
MAX_DEPTH = 8
# For all values of one call, as JSON.
MAX_BYTES = 10_000
NOTHING: Schema = {}

_canonical = msgspec.json.Encoder(order="deterministic").encode


def read(given: bytes | Mapping[str, Any]) -> Any:
    """Return the arguments that a client sent; ``None`` if they are not valid JSON."""
    if not isinstance(given, bytes):
        return dict(given)
    try:
        return msgspec.json.decode(given)
    except (ValueError, RecursionError):
        return None


def names(values: Any) -> list[str]:
    """Return the names of the arguments."""
    found = list(values)[:MAX_NAMES] if isinstance(values, dict) else []
    return [clip(one_line(without_secrets(name[:MAX_TEXT])), limit=MAX_NAME) for name in found]


def digest(values: Any) -> str:
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


def are_logged(component: Component, server: Any) -> bool:
    """Return whether the values of the arguments are logged."""
    wanted = component.log_arguments
    return bool(server.log_arguments if wanted is None else wanted)


def has_secrets(component: Component) -> bool:
    """Return whether an argument is secret, so that texts that contain it are not logged."""
    if component.sensitive:
        return True
    properties = _schema_of(component).get("properties", {})
    return any(hides_secret(name, member) for name, member in properties.items())


def _schema_of(component: Component) -> Schema:
    """Return the schema of the arguments."""
    source: Any = getattr(component, "arguments", None)
    return source.json_schema if source is not None else NOTHING


def shown(values: Any, component: Component) -> Any:
    """Return the values for the log, without secrets and cut to ``MAX_BYTES``."""
    if not isinstance(values, dict):
        return None
    page = _Page(_schema_of(component), frozenset(component.sensitive))
    return page.value(values, ())


@dataclass(slots=True)
class _Page:
    """Cuts the values of one call to a common limit and hides secrets."""

    schema: Schema
    sensitive: frozenset[str]
    left: int = field(default=MAX_BYTES)

    def value(self, value: Any, path: Path) -> Any:
        if path and is_secret(self.schema, path, sensitive=self.sensitive):
            self.left -= len(HIDDEN)
            return HIDDEN
        if self.left <= 0 or len(path) > MAX_DEPTH:
            return "…"
        if isinstance(value, dict):
            return self._members(value, path)
        if isinstance(value, list):
            return self._items(value, path)
        if isinstance(value, str):
            value = _shortened(value)
        self.left -= len(value) if isinstance(value, str) else 8
        return value

    def _members(self, value: dict[str, Any], path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, member in list(value.items())[:MAX_MEMBERS]:
            key = clip(without_secrets(storable(name[:MAX_TEXT])), limit=MAX_NAME)
            self.left -= len(key)
            found[key] = self.value(member, (*path, name))
        if len(value) > MAX_MEMBERS:
            found["…"] = f"{len(value) - MAX_MEMBERS} more"
        return found

    def _items(self, value: Sequence[Any], path: Path) -> list[Any]:
        found = [self.value(one, (*path, n)) for n, one in enumerate(value[:MAX_MEMBERS])]
        if len(value) > MAX_MEMBERS:
            found.append(f"… {len(value) - MAX_MEMBERS} more")
        return found


def _shortened(text: str) -> str:
    # Secrets first: one that is cut in the middle is not recognized.
    text = without_secrets(storable(text[: 4 * MAX_TEXT]))
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… (cut)"
