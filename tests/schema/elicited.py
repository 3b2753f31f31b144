"""Helpers that build elicitation forms and read their answers."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_django.schema.arguments import InvalidArguments
from mcp_django.schema.elicitation import build_elicitation_form
from tests.components.questions.shapes import check_form


def schema_of(declared: Any) -> dict[str, Any]:
    schema = build_elicitation_form(declared).json_schema
    check_form(schema)
    return schema


def read(declared: Any, content: Any) -> Any:
    return build_elicitation_form(declared).parse_answer(content)


def refusal(declared: Any) -> str:
    with pytest.raises(ImproperlyConfigured) as caught:
        build_elicitation_form(declared)
    return str(caught.value)


def problem(declared: Any, content: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        read(declared, content)
    return str(caught.value)
