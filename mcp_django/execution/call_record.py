"""``Entry``: the record of one use of a component, from the request to its row in the call log.

An ``Entry`` is not part of a reference cycle. If a call is never run or is abandoned, its record
is therefore logged at once, by ``__del__``, when the last reference is gone.

Of the arguments the log gets the names and a keyed digest always, the values where the site owner
has switched that on, and a secret never. What an exception means is recorded without any argument
in its text.
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
"""The methods that use a component, and the kind of it where it is not known."""

MAX_PROBLEMS = 20
MAX_PATH = 120


class Entry:
    """What becomes known of one use of a component; without ``open`` there is none to keep."""

    # A request makes one whatever its method is, so there is little to set.
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
        """Whether a line is to be written, and is not."""
        return bool(self._ends)

    @property
    def is_over(self) -> bool:
        """Whether there was one, which somebody has written."""
        return not self._ends and hasattr(self, "kind")

    # What the request says ----------------------------------------------------------------------

    def open(self, incoming: Incoming) -> None:
        """Begin, if the request is for a component and calls are logged."""
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
        # Taken by whoever ends it: several threads may want to.
        self._ends.append(None)

    def forget(self) -> None:
        """Keep nothing: the request begins again elsewhere."""
        self._ends.clear()

    # What its handler finds ---------------------------------------------------------------------

    def wants(self, name: str) -> None:
        """Somebody asks for this, which may be nothing."""
        if self._ends:
            self.name = name
            self.mark = Meaning("unknown")

    def found(self, component: Component, *, uri: str = "") -> None:
        """There is such a component, whatever the caller is told."""
        if self.operation is not None:
            self.operation.found(component, uri)
        if self._ends:
            self.component = component
            self.uri = uri

    def hidden_by(self, guard: object) -> None:
        """The caller is told that there is none; its owner may know why."""
        if self._ends:
            self.mark = Meaning("unknown", None, f"hidden by {guard}")

    def admitted(self, given: bytes | Mapping[str, Any]) -> None:
        """The caller may, with these arguments."""
        if self.operation is not None:
            self.operation.admitted(given)
        if self._ends:
            self.mark = None
            self.given = given

    def wrong(self, problems: Iterable[Problem]) -> None:
        """The arguments do not fit."""
        if self._ends:
            self.mark = Meaning("invalid")
            self.problems = [
                clip(without_secrets(_place(one)), limit=MAX_PATH)
                for one in islice(problems, MAX_PROBLEMS)
            ]

    def refuse(self, outcome: str, reason: str = "") -> None:
        """It does not run, for a reason that its answer does not tell by its code.

        ``outcome`` is one of ``Call.Outcome``: ``limited``, ``denied``, ``refused``.
        """
        if self._ends:
            self.mark = Meaning(outcome, None, reason)

    # What comes of it ---------------------------------------------------------------------------

    @property
    def writes(self) -> bool:
        """Whether it may change something: then a line is written before it does."""
        return isinstance(self.component, Tool) and not self.component.read_only

    def governed_by(self, spending: Spending) -> None:
        """What it reads is counted there."""
        if self._ends:
            self.spending = spending

    def failed(self, exc: Exception) -> None:
        """The component's function raised this; what is made of it is not known yet."""
        if self.operation is not None:
            self.operation.failed(exc)
        if self._ends:
            self.cause = failure(exc)

    def resume(self) -> None:
        """It runs, or goes on with the answers of its client."""
        if self._clock is None:
            self._clock = time.perf_counter()

    def pause(self) -> None:
        """It waits for its client, which is no time of ours."""
        self._spent += self._since()
        self._clock = None
        self.was_asked = True

    @property
    def ms(self) -> float:
        """How long it has run."""
        return round((self._spent + self._since()) * 1000, 3)

    def _since(self) -> float:
        return 0.0 if self._clock is None else time.perf_counter() - self._clock

    def take_end(self) -> bool:
        """Whether it is upon this caller to write the line, and nobody else."""
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


# What an exception means for the call log ---------------------------------------------------------

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
# What these say was written by this package or by a permission, and has no argument in it.
SAYS_ENOUGH = (AccessRefused, Busy)


class Meaning(NamedTuple):
    """The outcome of a call, the code of its error and the reason."""

    outcome: str
    code: int | None = None
    reason: str = ""


def before(exc: BaseException) -> Meaning:
    """What it means when nothing has run yet."""
    if isinstance(exc, AccessRefused):
        is_unknown = isinstance(exc, AuthenticationRequired)
        return Meaning("refused", UNAUTHORIZED if is_unknown else FORBIDDEN, exc.message)
    if isinstance(exc, MCPError):
        return Meaning(BY_CODE.get(exc.code, "refused"), exc.code, _told(exc))
    if isinstance(exc, asyncio.CancelledError):
        return Meaning("cancelled")
    return Meaning("failed", None, _told(exc))


def failure(exc: Exception) -> Meaning:
    """What an exception of the component's function means."""
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
    """What it means when the function has run, and ``cause`` is what it raised."""
    if isinstance(exc, asyncio.CancelledError):
        return Meaning("cancelled")
    if not isinstance(exc, MCPError):
        return cause or Meaning("failed", None, _told(exc))
    if cause is not None:
        return cause._replace(code=exc.code)
    meaning = before(exc)
    return meaning._replace(outcome="error") if meaning.outcome == "invalid" else meaning


def _told(exc: Any) -> str:
    """What may be said of an exception: its name, unless its text is our own."""
    is_our_own = isinstance(exc, SAYS_ENOUGH) and hasattr(exc, "message")
    return exc.message if is_our_own else type(exc).__name__


# The columns of ``Call`` --------------------------------------------------------------------------

STARTED = Meaning("started")
_END_OF_HOST = re.compile("[/?#]")


def begun(entry: Entry) -> dict[str, Any]:
    """What is known before the function runs."""
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
    """What is known in the end."""
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
    """The name it was called by, where that is not its own: as declared, so without values."""
    component = entry.component
    if component is None or not component.aliases or entry.name == component.key:
        return ""
    found = [one for one in component.aliases if one == entry.name]
    if isinstance(component, ResourceTemplate) and component.template.match(entry.name) is None:
        found = [one.template for one in component.former if one.match(entry.name) is not None]
    return f"called as {found[0]}" if found else ""


def _trace_id(entry: Entry) -> str:
    """The trace that its span belongs to; where there is none, that of the client."""
    known = entry.operation.trace_id if entry.operation is not None else ""
    return known or entry.envelope.trace.get("traceparent", "--").split("-")[1][:32]


def _asked_for(entry: Entry) -> str:
    """The name of what is not there; of an address, which may have values in it, the beginning."""
    name = entry.name
    if entry.kind != "resource" or getattr(entry.server, "log_arguments", False):
        return name
    scheme, _, rest = name.partition(":")
    if not rest.startswith("//"):
        return f"{scheme}:…" if rest else name
    host = _END_OF_HOST.split(rest[2:], maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}://{host}" if rest == f"//{host}" else f"{scheme}://{host}/…"


def _client(info: Any) -> str:
    """What the client calls itself, which is for display alone."""
    said = [info.get("name"), info.get("version")]
    return _text(" ".join(one for one in said if isinstance(one, str)), 255)


def _text(text: str, limit: int) -> str:
    # A name that somebody made up may be megabytes, and a secret that is cut is not known for one.
    return clip(one_line(without_secrets(text[: 4 * limit])), limit=limit)


# Arguments in the log -----------------------------------------------------------------------------

SALT = "mcp_django.calls.arguments"
MAX_NAMES = 50
MAX_NAME = 80
MAX_TEXT = 500
MAX_MEMBERS = 50
MAX_DEPTH = 8
# Of all values of one call, as JSON.
MAX_BYTES = 10_000
NOTHING: Schema = {}

_canonical = msgspec.json.Encoder(order="deterministic").encode


def read(given: bytes | Mapping[str, Any]) -> Any:
    """What a client sent as arguments; ``None`` where it is no JSON that can be read."""
    if not isinstance(given, bytes):
        return dict(given)
    try:
        return msgspec.json.decode(given)
    except (ValueError, RecursionError):
        return None


def names(values: Any) -> list[str]:
    """The names of the arguments."""
    found = list(values)[:MAX_NAMES] if isinstance(values, dict) else []
    return [clip(one_line(without_secrets(name[:MAX_TEXT])), limit=MAX_NAME) for name in found]


def digest(values: Any) -> str:
    """The same for the same arguments, in whatever order they were sent.

    Keyed, since a short argument could be guessed from its digest otherwise.
    """
    try:
        text = _canonical(values)
    except (ValueError, TypeError, RecursionError):
        return ""
    return hmac.digest(_key(settings.SECRET_KEY), text, "sha256").hex()


@lru_cache(maxsize=2)
def _key(secret: str | bytes) -> bytes:
    """What ``salted_hmac`` would make the key of, for each call anew."""
    return hashlib.sha256(SALT.encode() + force_bytes(secret)).digest()


def are_logged(component: Component, server: Any) -> bool:
    """Whether the values go into the log."""
    wanted = component.log_arguments
    return bool(server.log_arguments if wanted is None else wanted)


def has_secrets(component: Component) -> bool:
    """Whether one of the arguments is not to be logged, so that no text with them may be either."""
    if component.sensitive:
        return True
    properties = _schema_of(component).get("properties", {})
    return any(hides_secret(name, member) for name, member in properties.items())


def _schema_of(component: Component) -> Schema:
    """The schema of the arguments."""
    source: Any = getattr(component, "arguments", None)
    return source.json_schema if source is not None else NOTHING


def shown(values: Any, component: Component) -> Any:
    """The values for the log: without secrets, and no longer than a page."""
    if not isinstance(values, dict):
        return None
    page = _Page(_schema_of(component), frozenset(component.sensitive))
    return page.value(values, ())


@dataclass(slots=True)
class _Page:
    """What is written of one call, with a bound for all of it."""

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
    # One that is cut in its middle would not be known for a secret any more.
    text = without_secrets(storable(text[: 4 * MAX_TEXT]))
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… (cut)"
