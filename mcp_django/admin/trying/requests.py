"""From what was entered to the request that a client would send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError

from mcp_django.admin.trying.trials import Trial
from mcp_django.core.component import Prompt
from mcp_django.core.resource import ReadableComponent, ResourceTemplate
from mcp_django.core.tool import Tool

Request = tuple[str, dict[str, Any]]


def request_for(trial: Trial, values: Mapping[str, Any]) -> Request:
    """The method that uses the component, and its parameters.

    Raises:
        ValidationError: there is no such URI.
    """
    component = trial.component
    if isinstance(component, Tool):
        return "tools/call", {"name": component.name, "arguments": dict(values)}
    if isinstance(component, Prompt):
        return "prompts/get", {"name": component.name, "arguments": as_texts(values)}
    assert isinstance(component, ReadableComponent)
    if isinstance(component, ResourceTemplate):
        return "resources/read", {"uri": _expanded(component, as_texts(values))}
    return "resources/read", {"uri": component.key}


def completion_request(trial: Trial, name: str, typed: str, others: Mapping[str, str]) -> Request:
    """The request for suggestions for one argument."""
    is_prompt = isinstance(trial.component, Prompt)
    ref = {"type": "ref/prompt", "name": trial.component.name}
    if not is_prompt:
        ref = {"type": "ref/resource", "uri": trial.key}
    params: dict[str, Any] = {"ref": ref, "argument": {"name": name, "value": typed}}
    if others and trial.revision.completion_context:
        params["context"] = {"arguments": dict(others)}
    return "completion/complete", params


def as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Arguments as prompts and templates have them: text on the wire."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
        if value is not None
    }


def _expanded(component: ResourceTemplate, values: Mapping[str, str]) -> str:
    try:
        return component.template.expand(values)
    except ValueError as exc:
        raise ValidationError(str(exc)) from None
