"""What a generated tool is made of: arguments, a function, and answers that are JSON already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any, Final

from pydantic import Field

from mcp_django.components.function import ComponentFunction
from mcp_django.context import Context
from mcp_django.schema.annotations import SignatureArguments
from mcp_django.schema.portable import portable_output
from mcp_django.schema.structure import Schema

# No field of a model ends in an underscore, so no argument has this name.
CONTEXT: Final = "ctx_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a generated tool; left out it is ``None``, unless it is required."""

    annotation: Any
    description: str = ""
    required: bool = False
    default: Any = None

    def parameter(self, name: str) -> Parameter:
        """The parameter of a function that would ask for it."""
        hint = self.annotation
        if self.description:
            hint = Annotated[hint, Field(description=self.description)]
        default = Parameter.empty if self.required else self.default
        return Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def arguments(of: str, named: Mapping[str, Argument]) -> SignatureArguments:
    """Read these arguments as if a function ``of`` had declared them."""

    def declared() -> None:
        """Stand for the function."""

    declared.__name__ = declared.__qualname__ = of
    signature = Signature([one.parameter(name) for name, one in named.items()])
    declared.__signature__ = signature  # type: ignore[attr-defined]
    return SignatureArguments(declared)


def function(call: Callable[[Context, dict[str, Any]], Any], *, name: str) -> ComponentFunction:
    """The component function of ``call(ctx, arguments)``."""

    def generated(ctx_: Context, **given: Any) -> Any:
        return call(ctx_, given)

    generated.__name__ = generated.__qualname__ = name
    return ComponentFunction(function=generated, is_async=False, context_parameter=CONTEXT)


def declared_by(function: Callable[..., Any], declaration: object) -> None:
    """Note which registration a generated function belongs to, for whoever looks for its code."""
    function.declared_by = declaration  # type: ignore[attr-defined]


class MadeHere:
    """Answers that were made to fit their schema, and so are not checked once more."""

    def __init__(self, schema: Schema) -> None:
        self.json_schema = portable_output(schema)

    def dump(self, value: Any) -> Any:
        """The value, which is plain JSON."""
        return value
