"""Conversion of results, notifications, client requests and tasks to the format of a revision.

Only this module knows what a revision lacks. Everything is built in the format of 2026-07-28 and
reduced here, because older clients fail on unknown content types, extra members of empty results
and schemas that they cannot read. The input is never changed. For the differences between the
revisions, see docs/protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import SERVER_INFO, SUBSCRIPTION_ID
from mcp_django.protocol.headers import Schema, map_subschemas
from mcp_django.protocol.methods import REQUESTS, SERVER_NOTIFICATIONS
from mcp_django.protocol.revisions import Revision, error_code_in
from mcp_django.protocol.text import clip

Wire = Mapping[str, Any]

# At the handshake revisions these must be exactly `{}`; peers validate them strictly.
_EMPTY_RESULTS = frozenset(
    {"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
_STATELESS_MEMBERS = frozenset({"resultType", "ttlMs", "cacheScope"})


def project_result(
    method: str,
    result: Wire,
    revision: Revision,
    *,
    identity: Any,
    output_schema: Wire | None = None,
) -> dict[str, Any]:
    """Return the result of `method` in the format of `revision`.

    `identity` is the server info, as JSON values or encoded, for revisions whose results contain
    it; `None` omits it. `output_schema` is that of the called tool. For revisions that allow only
    objects, other structured content is wrapped; without a schema, the type of the value determines
    whether it is.
    """
    if not revision.stateless:
        return _handshake_result(method, result, revision, output_schema)
    if method in _EMPTY_TASK_RESULTS:
        result = {}
    elif method == "tasks/get":
        result = _newer_task(result, revision)
    projected = {"resultType": "complete", **result}
    # If a tool call became a task, `ttlMs` is the lifetime of the task.
    if projected["resultType"] != "complete" and method != "tools/call":
        projected.pop("ttlMs", None)
        projected.pop("cacheScope", None)
    elif (definition := REQUESTS.get(method)) is not None and definition.cacheable:
        projected.setdefault("ttlMs", 0)
        projected.setdefault("cacheScope", "private")
    meta = result.get("_meta")
    if identity is not None:
        meta = {**(meta or {}), SERVER_INFO: identity}
        projected["_meta"] = meta
        if revision.identity_in_discover and method == "server/discover":
            projected["serverInfo"] = identity
    if meta and revision.string_subscription_ids:
        projected["_meta"] = _with_string_id(meta)
    return projected


def _handshake_result(
    method: str, result: Wire, revision: Revision, output_schema: Wire | None
) -> dict[str, Any]:
    if method in _EMPTY_RESULTS:
        return {}
    if result.get("resultType") == "task":
        # The task is nested, as in 2025-11-25.
        meta = {"_meta": result["_meta"]} if "_meta" in result else {}
        return {"task": _older_task(result), **meta}
    if method in _SINGLE_TASK_METHODS:
        return _older_task(result)
    projected = _without(result, _STATELESS_MEMBERS)
    if method in _MEMBERS:
        member, project = _MEMBERS[method]
        # The entries of a list are encoded already (`encode_entries`).
        if not isinstance(projected[member], msgspec.Raw):
            projected[member] = [project(part, revision) for part in projected[member]]
    elif method == "initialize":
        projected["capabilities"] = project_capabilities(projected["capabilities"], revision)
        projected["serverInfo"] = project_implementation(projected["serverInfo"], revision)
    if method == "tools/call" and "structuredContent" in projected:
        value = projected["structuredContent"]
        if output_schema is None:
            fits = isinstance(value, Mapping)
        else:
            fits = is_object_schema(output_schema)
        if revision.structured_output == "none":
            del projected["structuredContent"]
        elif not fits:
            projected["structuredContent"] = wrap_value(value)
    return projected


def encode_entries(
    method: str, entries: Iterable[Wire], revision: Revision, *, max_bytes: float
) -> tuple[Any, int]:
    """Return the first entries of a list as encoded JSON in the format of `revision`, and how many.

    The encoded entries have at most `max_bytes`, unless the first entry is larger. `project_result`
    does not change them. An entry that cannot be encoded is returned unchanged, so that encoding
    the result fails.
    """
    project = None if revision.stateless or method not in _MEMBERS else _MEMBERS[method][1]
    encoded: list[bytes] = []
    size = 1
    for wire in entries:
        try:
            part = jsonrpc.encode(wire if project is None else project(wire, revision))
        except (TypeError, ValueError):
            return [wire], len(encoded) + 1
        size += len(part) + 1
        if size > max_bytes and encoded:
            break
        encoded.append(part)
    return msgspec.Raw(b"[" + b",".join(encoded) + b"]"), len(encoded)


def project_notification(
    method: str, params: Wire | None, revision: Revision
) -> dict[str, Any] | None:
    """Return the parameters of a notification, or `None` if the revision does not define it."""
    if revision.version not in SERVER_NOTIFICATIONS.get(method, ()):
        return None
    projected = dict(params or {})
    if method == "notifications/progress" and not revision.progress_message:
        projected.pop("message", None)
    if method == "notifications/tasks":
        projected = _newer_task(projected, revision)
    elif method == "notifications/tasks/status":
        projected = _older_task(projected)
    meta = projected.get("_meta")
    if meta and revision.string_subscription_ids:
        projected["_meta"] = _with_string_id(meta)
    return projected


def _with_string_id(meta: Wire) -> dict[str, Any]:
    if SUBSCRIPTION_ID not in meta:
        return dict(meta)
    return {**meta, SUBSCRIPTION_ID: str(meta[SUBSCRIPTION_ID])}


def project_implementation(info: Wire, revision: Revision) -> dict[str, Any]:
    """Return the server or client info without members that the revision lacks."""
    lacks = set()
    if not revision.implementation_title:
        lacks.add("title")
    if not revision.implementation_details:
        lacks.update(("description", "icons", "websiteUrl"))
    return _without(info, lacks)


def project_capabilities(capabilities: Wire, revision: Revision) -> dict[str, Any]:
    """Return the server's capabilities without those that the revision does not define."""
    lacks = set()
    if not revision.completions_capability:
        lacks.add("completions")
    if not revision.extensions:
        lacks.add("extensions")
    if not revision.tasks:
        lacks.add("tasks")
    return _without(capabilities, lacks)


def project_tool(tool: Wire, revision: Revision) -> dict[str, Any]:
    """Return an entry of the list of tools in the format of the revision."""
    projected = _project_listed(tool, revision)
    annotations = tool.get("annotations")
    if not revision.tool_annotations:
        projected.pop("annotations", None)
    elif not revision.titles and "title" in tool:
        # The only place for a title that these clients read.
        projected["annotations"] = {"title": tool["title"], **(annotations or {})}
    lacks = () if revision.schema_dialect else {"$schema"}
    projected["inputSchema"] = _without(tool["inputSchema"], lacks)
    output = projected.pop("outputSchema", None)
    if output is not None and revision.structured_output != "none":
        if revision.structured_output == "object" and not is_object_schema(output):
            output = wrap_schema(output)
        projected["outputSchema"] = _without(output, lacks)
    return projected


def project_resource(resource: Wire, revision: Revision) -> dict[str, Any]:
    """Return an entry of the list of resources or templates in the format of the revision."""
    return _project_annotations(_project_listed(resource, revision), revision)


def project_prompt(prompt: Wire, revision: Revision) -> dict[str, Any]:
    """Return an entry of the list of prompts in the format of the revision."""
    projected = _project_listed(prompt, revision)
    if "arguments" in prompt and not revision.titles:
        projected["arguments"] = [_without(a, {"title"}) for a in prompt["arguments"]]
    return projected


_PLAIN_TEXT = {"type", "text"}


def project_block(block: Wire, revision: Revision) -> dict[str, Any]:
    """Return a content block; a type that the revision lacks is converted to one that it has."""
    kind = block["type"]
    if kind == "audio" and not revision.audio:
        # An embedded resource needs a URI; this one cannot be read.
        contents = {"uri": "attachment:audio", "mimeType": block["mimeType"], "blob": block["data"]}
        resource = {**_without(block, {"data", "mimeType"}), "type": "resource"}
        return project_block({**resource, "resource": contents}, revision)
    if kind == "resource_link" and not revision.resource_links:
        text = {"type": "text", "text": f"{block.get('title') or block['name']}: {block['uri']}"}
        if "annotations" in block:
            text["annotations"] = block["annotations"]
        return project_block(text, revision)
    if block.keys() == _PLAIN_TEXT:
        return dict(block)
    projected = _project_annotations(_project_listed(block, revision), revision)
    if kind == "resource":
        projected["resource"] = _project_contents(block["resource"], revision)
    return projected


def _project_contents(contents: Wire, revision: Revision) -> dict[str, Any]:
    return _without(contents, () if revision.object_meta else {"_meta"})


def _project_listed(described: Wire, revision: Revision) -> dict[str, Any]:
    lacks = set()
    if not revision.titles:
        lacks.add("title")
    if not revision.icons:
        lacks.add("icons")
    if not revision.object_meta:
        lacks.add("_meta")
    return _without(described, lacks)


def _project_annotations(projected: dict[str, Any], revision: Revision) -> dict[str, Any]:
    """Remove the annotations that the revision lacks from a resource or block, in place."""
    annotations = projected.get("annotations")
    if annotations is not None and not revision.last_modified:
        remaining = _without(annotations, {"lastModified"})
        projected.pop("annotations")
        if remaining:
            projected["annotations"] = remaining
    return projected


def _without(wire: Wire, keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in wire.items() if key not in keys} if keys else dict(wire)


# The member of a method's result that has the entries, and the function that converts an entry.
_MEMBERS: Mapping[str, tuple[str, Callable[[Wire, Revision], dict[str, Any]]]] = {
    "tools/list": ("tools", project_tool),
    "tools/call": ("content", project_block),
    "resources/list": ("resources", project_resource),
    "resources/templates/list": ("resourceTemplates", project_resource),
    "resources/read": ("contents", _project_contents),
    "prompts/list": ("prompts", project_prompt),
    "prompts/get": (
        "messages",
        lambda message, revision: {
            **message,
            "content": project_block(message["content"], revision),
        },
    ),
    "tasks/list": ("tasks", lambda task, revision: _older_task(task)),
}


# The format of elicitation and sampling requests differs between the handshake revisions. What an
# older revision lacks is removed or expressed differently; ``find_inexpressible`` returns what
# cannot be expressed at all.


def project_client_request(
    method: str, params: Wire, revision: Revision, *, elicitation_id: str
) -> dict[str, Any]:
    """Return the parameters of a client request in the format of `revision`.

    `elicitation_id` is the unique id of an elicitation in URL mode.
    """
    projected = dict(params)
    if method == "elicitation/create":
        if not revision.elicitation_url:
            # 2025-06-18 has only form mode, and no member for the mode.
            projected.pop("mode", None)
            projected["requestedSchema"] = _older_form(projected["requestedSchema"])
        elif projected.get("mode") == "url" and revision.elicitation_ids:
            projected["elicitationId"] = elicitation_id
    elif method == "sampling/createMessage" and not revision.sampling_tools:
        projected.pop("tools", None)
        projected.pop("toolChoice", None)
        # In these revisions a message has exactly one block.
        projected["messages"] = [
            {"role": message["role"], "content": project_block(block, revision)}
            for message in projected["messages"]
            for block in _blocks(message)
        ]
    return projected


def find_inexpressible(method: str, params: Wire, revision: Revision) -> str | None:
    """Return the part of a client request that `revision` cannot express, `None` if there is none.

    The part is a noun phrase for an error message.
    """
    if method == "elicitation/create" and not revision.elicitation_url:
        for name, field in params.get("requestedSchema", {}).get("properties", {}).items():
            if field.get("type") == "array":
                return f"the multiple-choice field {name!r}"
    if method == "sampling/createMessage" and not revision.audio:
        for message in params["messages"]:
            if any(block["type"] == "audio" for block in _blocks(message)):
                return "audio"
    return None


def _blocks(message: Wire) -> list[Wire]:
    content = message["content"]
    return content if isinstance(content, list) else [content]


def _older_form(form: Wire) -> dict[str, Any]:
    """Return a form for 2025-06-18: defaults only for booleans, choice titles in `enumNames`."""
    properties = {}
    for name, field in form["properties"].items():
        older = dict(field)
        if field.get("type") != "boolean":
            older.pop("default", None)
        titled = older.pop("oneOf", None)
        if titled:
            older["enum"] = [option["const"] for option in titled]
            older["enumNames"] = [option["title"] for option in titled]
        properties[name] = older
    return {**_without(form, {"$schema"}), "properties": properties}


# Tasks are built in the format of the extension ``io.modelcontextprotocol/tasks`` of 2026-07-28:
# flat, with the unit in the names of durations, and with their result or error. 2025-11-25 nests a
# new task, names durations differently, returns results by a separate method, and marks a task as
# failed if the result of its tool is an error.

_OLDER_MEMBERS = ("taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt")
_OLDER_NAMES = {"ttlMs": "ttl", "pollIntervalMs": "pollInterval"}
# Methods for which the extension returns an empty result.
_EMPTY_TASK_RESULTS = frozenset({"tasks/update", "tasks/cancel"})
# Methods for which 2025-11-25 returns a task.
_SINGLE_TASK_METHODS = frozenset({"tasks/get", "tasks/cancel"})


def _newer_task(task: Wire, revision: Revision) -> dict[str, Any]:
    """Return a task in the format of 2026-07-28, with the result or error of the call inlined."""
    projected = dict(task)
    if "result" in task:
        projected["result"] = {"resultType": "complete", **task["result"]}
    if "code" in task.get("error", {}):
        error = task["error"]
        projected["error"] = {**error, "code": error_code_in(revision, error["code"])}
    return projected


def _older_task(task: Wire) -> dict[str, Any]:
    """Return a task in the format of 2025-11-25, without its result or error."""
    projected = {name: task[name] for name in _OLDER_MEMBERS if name in task}
    projected |= {older: task[name] for name, older in _OLDER_NAMES.items() if name in task}
    result = task.get("result")
    if task["status"] == "completed" and result is not None and result.get("isError"):
        projected["status"] = "failed"
        texts = (block["text"] for block in result.get("content", ()) if block["type"] == "text")
        first_text = clip(next(texts, ""), limit=500)
        projected["statusMessage"] = first_text or "The tool reported an error."
    return projected


# 2025-06-18 and 2025-11-25 require ``type: object`` at the root of ``outputSchema`` and an object
# as ``structuredContent``; a list or a number is sent as ``{"result": ...}``.

_WRAPPED_POINTER = "#/properties/result"


def is_object_schema(schema: Schema) -> bool:
    """Return whether these revisions accept the schema without wrapping it."""
    return schema.get("type") == "object"


def wrap_value(value: Any) -> dict[str, Any]:
    """Return `value` wrapped in an object."""
    return {"result": value}


def wrap_schema(schema: Schema) -> dict[str, Any]:
    """Return the schema of the values of `schema` after `wrap_value`."""
    inner = dict(_move_references(schema))
    # `$schema` is allowed only at the root.
    dialect = {"$schema": inner.pop("$schema")} if "$schema" in inner else {}
    return {**dialect, "type": "object", "properties": {"result": inner}, "required": ["result"]}


def _move_references(schema: Any) -> Any:
    # References below an `$id` are relative to it, wherever the schema is moved.
    if not isinstance(schema, Mapping) or "$id" in schema:
        return schema
    moved = map_subschemas(schema, _move_references)
    for keyword in ("$ref", "$dynamicRef"):
        reference = moved.get(keyword)
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            moved[keyword] = _WRAPPED_POINTER + reference[1:]
    return moved
