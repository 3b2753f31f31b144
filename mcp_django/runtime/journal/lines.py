"""The line of an ``Entry``: the columns of ``Call``."""

from __future__ import annotations

import re
from typing import Any

from mcp_django.core.resource import ResourceTemplate
from mcp_django.protocol.errors import clip, code_in
from mcp_django.protocol.text import one_line
from mcp_django.runtime.journal import arguments
from mcp_django.runtime.journal.entry import Entry
from mcp_django.runtime.journal.outcomes import Meaning
from mcp_django.schema.secrets import without_secrets

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
    values = arguments.read(entry.given)
    found: dict[str, Any] = {
        "argument_names": arguments.names(values),
        "arguments_digest": arguments.digest(values),
        "arguments": None,
        "uri": "",
    }
    component = entry.component
    if component is not None and arguments.are_logged(component, entry.server):
        found["arguments"] = arguments.shown(values, component)
        if entry.uri and not arguments.has_secrets(component):
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


__all__ = ["begun", "ended"]
