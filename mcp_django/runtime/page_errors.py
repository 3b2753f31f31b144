"""Pages that the user has to visit, told by an error where a client takes no questions (ASK-18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp_django.protocol.errors import URLElicitationRequired
from mcp_django.protocol.revisions import Revision
from mcp_django.protocol.shapes import project_question


def pages_to_visit(
    questions: Mapping[str, Mapping[str, Any]], revision: Revision, id_of: Callable[[str], str]
) -> URLElicitationRequired:
    """The error that names the pages of these questions, each with the id of its key."""
    asked = [
        project_question(one["method"], one["params"], revision, elicitation_id=id_of(key))
        for key, one in questions.items()
    ]
    return URLElicitationRequired(
        "The user has to visit a page first; call again afterwards.",
        data={"elicitations": asked},
    )
