"""Completions: suggestions for the arguments of a prompt or of a resource template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcp_django.components.function import ComponentFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Suggests values for one argument of one prompt or template.

    The function takes the typed ``value`` first; a ``Context`` and parameters named like other
    arguments (the values chosen so far) are optional. It returns strings, most relevant first.
    """

    kind: Literal["prompt", "resource template"]
    key: str
    argument: str
    function: ComponentFunction
