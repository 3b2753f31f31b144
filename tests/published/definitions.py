"""Validate one message from server to client by the published schemas (schemas/README.md).

The methods, their directions and their results are read from the schemas. The schemas allow members
that they do not name, so members that a revision does not have are tested elsewhere
(tests/transports/http_session/test_projections.py).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

try:
    import jsonschema_rs
except ImportError:
    # Without the extras, messages are not validated.
    jsonschema_rs = None

SCHEMAS = Path(__file__).parent / "schemas"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
LATEST = REVISIONS[-1]
ALIASES = {"DRAFT-2026-v1": LATEST}
BATCHES = {"2025-03-26"}
IS_AVAILABLE = jsonschema_rs is not None

# The schema of 2026-07-28 has no definitions of extensions. The envelope is validated, and the
# members that all results have, and these members, for which the schema has a definition.
EXTENSION_RESULTS: Mapping[str, Mapping[str, str]] = {
    # io.modelcontextprotocol/tasks: the result or error of a task, and its client requests.
    "tasks/get": {"result": "CallToolResult", "inputRequests": "InputRequests", "error": "Error"},
    "tasks/cancel": {},
    "tasks/update": {},
    # io.modelcontextprotocol/skills
    "skills/list": {},
    "skills/get": {},
    "resources/directory/read": {},
}
EXTENSION_NOTIFICATIONS: Mapping[str, Mapping[str, str]] = {
    "notifications/tasks": EXTENSION_RESULTS["tasks/get"],
}
# A call that becomes a task.
EXTENSION_RESULT_TYPES = {("CallTool", "task"): "Result"}

# The schemas of these revisions require an id in an error and do not allow null, while their
# transport chapters describe "a JSON-RPC error response that has no id": an error leaves out an id
# that could not be read (RPC-11).
ERRORS_NEED_AN_ID = {"2024-11-05", "2025-03-26", "2025-06-18"}

CLIPPED = 400


class Published:
    """The schema of one revision."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        raw = (SCHEMAS / f"{revision}.json").read_text(encoding="utf-8")
        self._schema: dict[str, Any] = json.loads(raw)
        self._key = "$defs" if "$defs" in self._schema else "definitions"
        self._definitions: dict[str, Any] = self._schema[self._key]
        self._validators: dict[str, Any] = {}
        self._asked = self._by_method("ClientRequest")
        self._requests = self._by_method("ServerRequest")
        self._notifications = self._by_method("ServerNotification")
        self._errors = dict(self._by_code())

    # Which definition ------------------------------------------------------------------------

    def _by_method(self, union: str) -> dict[str, str]:
        """Return the members of a union by their methods."""
        references = [
            member["$ref"] for member in self._definitions.get(union, {}).get("anyOf", ())
        ]
        names = [name.rpartition("/")[2] for name in references]
        return {self._definitions[name]["properties"]["method"]["const"]: name for name in names}

    def _by_code(self) -> Iterator[tuple[int, tuple[str, bool]]]:
        """Yield the definitions of errors by code, and whether each defines a whole message."""
        for name, definition in self._definitions.items():
            properties = definition.get("properties", {})
            if "const" in properties.get("code", {}):
                yield properties["code"]["const"], (name, False)
            for part in properties.get("error", {}).get("allOf", ()):
                code = part.get("properties", {}).get("code", {})
                if "const" in code:
                    yield code["const"], (name, True)

    def _first(self, *names: str) -> str:
        return next(name for name in names if name in self._definitions)

    # One message -----------------------------------------------------------------------------

    def problems(self, message: Any, method: str | None) -> Iterator[str]:
        """Yield the problems of a message; `method` is that of the request that it answers."""
        if not isinstance(message, dict):
            yield "a message is an object"
            return
        kinds = message.keys() & {"method", "result", "error"}
        if len(kinds) != 1:
            yield f"a message is a request, a notification, a result or an error, not {kinds or 0}"
        elif "method" in message and "id" in message:
            yield from self._request_problems(message)
        elif "method" in message:
            yield from self._notification_problems(message)
        elif "error" in message:
            yield from self._error_problems(message)
        else:
            yield from self._of("JSONRPCResultResponse", "JSONRPCResponse", value=message)
            yield from self._result_problems(message["result"], method)

    def _request_problems(self, message: Mapping[str, Any]) -> Iterator[str]:
        yield from self._of("JSONRPCRequest", value=message)
        name = self._requests.get(str(message["method"]))
        if name is None:
            yield f"the server has no request {message['method']!r}"
        else:
            yield from self._of(name, value=message)

    def _notification_problems(self, message: Mapping[str, Any]) -> Iterator[str]:
        yield from self._of("JSONRPCNotification", value=message)
        method = str(message["method"])
        if method in self._notifications:
            yield from self._of(self._notifications[method], value=message)
        elif self.revision == LATEST and method in EXTENSION_NOTIFICATIONS:
            yield from self._members(EXTENSION_NOTIFICATIONS[method], message.get("params"))
        else:
            yield f"the server has no notification {method!r}"

    def _error_problems(self, message: Mapping[str, Any]) -> Iterator[str]:
        yield from self._of("JSONRPCErrorResponse", "JSONRPCError", value=message)
        error = message["error"]
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, int) and code in self._errors:
            name, is_whole = self._errors[code]
            yield from self._of(name, value=message if is_whole else error)

    def _result_problems(self, result: Any, method: str | None) -> Iterator[str]:
        yield from self._of("Result", value=result)
        if not isinstance(result, dict):
            return
        if method in self._asked:
            name = self._result_of(self._asked[method].removesuffix("Request"), result)
            if name is None:
                yield f"{method!r} has no result of the type {result['resultType']!r}"
            else:
                yield from self._of(name, value=result)
        elif self.revision == LATEST and method in EXTENSION_RESULTS:
            yield from self._members(EXTENSION_RESULTS[method], result)
        else:
            yield f"{method!r} has no result"
        if self.revision == "2025-11-25" and method == "tasks/result":
            # The definition allows the result of any method; here the method is `tools/call`.
            yield from self._of("CallToolResult", value=result)

    def _result_of(self, stem: str, result: Mapping[str, Any]) -> str | None:
        """Return the definition of a result, or `None` if the request has no result of its type.

        The type of the result selects the definition, because a union would allow everything that
        its widest member allows.
        """
        if self.revision == "2025-11-25" and stem == "CallTool" and "task" in result:
            return "CreateTaskResult"
        if self.revision == LATEST and result.get("resultType", "complete") != "complete":
            response = json.dumps(self._definitions.get(f"{stem}ResultResponse"))
            if result["resultType"] == "input_required" and "InputRequiredResult" in response:
                return "InputRequiredResult"
            return EXTENSION_RESULT_TYPES.get((stem, str(result["resultType"])))
        return self._first(f"{stem}Result", "EmptyResult")

    def _members(self, names: Mapping[str, str], value: Any) -> Iterator[str]:
        for member, name in names.items():
            if isinstance(value, dict) and member in value:
                yield from self._of(name, value=value[member])

    def _of(self, *names: str, value: Any) -> Iterator[str]:
        """Yield the problems of a value by the first of the definitions that the revision has."""
        name = self._first(*names)
        validator = self._validators.get(name)
        if validator is None:
            validator = self._validators[name] = self._validator(name)
        if not validator.is_valid(value):
            for error in validator.iter_errors(value):
                yield f"{name}: {explained(error)}"

    def _validator(self, name: str) -> Any:
        schema = {
            "$schema": self._schema["$schema"],
            "$ref": f"#/{self._key}/{name}",
            self._key: self._definitions,
        }
        return jsonschema_rs.validator_for(
            schema, validate_formats=True, formats={"byte": is_base64}
        )


@cache
def published(revision: str) -> Published:
    """Return the schema of a revision, which is read once."""
    return Published(ALIASES.get(revision, revision))


def problem(message: Any, revision: str, method: str | None = None) -> str | None:
    """Return the problems of a message or `None`; `method` is that of its request."""
    problems = [*published(revision).problems(message, method)]
    if not problems:
        return None
    text = clip(json.dumps(message, ensure_ascii=False))
    answered = f", as an answer to {method}" if method else ""
    return "\n  ".join([f"{text}\n  is no message of {revision}{answered}:", *problems])


def without_excuse(message: Any, revision: str) -> Any:
    """Return the message to validate: an error without an id gets one where it needs one."""
    if revision not in ERRORS_NEED_AN_ID or not isinstance(message, dict):
        return message
    return {**message, "id": 0} if "error" in message and "id" not in message else message


def is_base64(value: str) -> bool:
    """Return whether a value has the format that the schemas call `byte`."""
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def explained(error: Any) -> str:
    """Return an error of the validator with its place, and the errors of each member of a union."""
    where = "/".join(map(str, error.instance_path)) or "the whole"
    line = f"{where}: {clip(error.message)}"
    context = getattr(error.kind, "context", ())
    if not isinstance(context, list):
        return line
    parts = ["; ".join(explained(cause) for cause in part) for part in context]
    return "\n    ".join([line, *parts])


def clip(text: str) -> str:
    """Return a text, cut to `CLIPPED` characters."""
    return text if len(text) <= CLIPPED else f"{text[:CLIPPED]}…"
