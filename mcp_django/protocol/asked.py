"""Questions to the client, as each handshake revision writes them.

Built as 2026-07-28 has them; what an older client does not know is cut off or said otherwise, and
what cannot be said at all is named by `unsayable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_django.protocol.revisions import Revision
from mcp_django.protocol.shapes import project_block

Wire = Mapping[str, Any]


def project_question(
    method: str, params: Wire, revision: Revision, *, elicitation_id: str
) -> dict[str, Any]:
    """Return the parameters of a question as `revision` has them.

    `elicitation_id` names it where the user is sent to a page; no other question has that id.
    """
    projected = dict(params)
    if method == "elicitation/create":
        return _project_elicitation(projected, revision, elicitation_id)
    if method == "sampling/createMessage":
        return _project_sampling(projected, revision)
    return projected


def unsayable(method: str, params: Wire, revision: Revision) -> str | None:
    """Return what in a question `revision` has no words for, `None` if it has words for all."""
    if method == "elicitation/create" and not revision.elicitation_url:
        for name, field in params.get("requestedSchema", {}).get("properties", {}).items():
            if field.get("type") == "array":
                return f"the list of choices {name!r}"
    if method == "sampling/createMessage" and not revision.audio:
        for message in params["messages"]:
            if any(block["type"] == "audio" for block in _blocks(message)):
                return "sound"
    return None


def _project_sampling(params: dict[str, Any], revision: Revision) -> dict[str, Any]:
    if not revision.sampling_tools:
        params.pop("tools", None)
        params.pop("toolChoice", None)
        # A message is one block there.
        params["messages"] = [
            {"role": message["role"], "content": project_block(block, revision)}
            for message in params["messages"]
            for block in _blocks(message)
        ]
    return params


def _blocks(message: Wire) -> list[Wire]:
    content = message["content"]
    return content if isinstance(content, list) else [content]


def _project_elicitation(
    params: dict[str, Any], revision: Revision, elicitation_id: str
) -> dict[str, Any]:
    if not revision.elicitation_url:
        # There is one mode and no word for it (T38).
        params.pop("mode", None)
        params["requestedSchema"] = _older_form(params["requestedSchema"])
    elif params.get("mode") == "url" and revision.elicitation_ids:
        params["elicitationId"] = elicitation_id
    return params


def _older_form(form: Wire) -> dict[str, Any]:
    """A form of 2025-06-18: defaults for yes or no alone, titles of choices beside the values."""
    properties = {name: _older_field(field) for name, field in form["properties"].items()}
    return {**{key: form[key] for key in form if key != "$schema"}, "properties": properties}


def _older_field(field: Wire) -> dict[str, Any]:
    older = dict(field)
    if field.get("type") != "boolean":
        older.pop("default", None)
    titled = older.pop("oneOf", None)
    if titled:
        older["enum"] = [one["const"] for one in titled]
        older["enumNames"] = [one["title"] for one in titled]
    return older
