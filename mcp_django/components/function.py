"""The developer's function, looked at once when it is registered."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, get_args

from django.core.exceptions import ImproperlyConfigured

from mcp_django.context import Context
from mcp_django.schema.signature import positional_names, read_parameters, return_annotation

QUESTIONS = frozenset({"ask", "elicit", "elicit_url", "list_roots", "sample"})
EMBEDDED = "EmbeddedResource"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentFunction:
    """A function with what the runtime has to know to call it."""

    function: Callable[..., Any]
    is_async: bool
    context_parameter: str | None
    returns: Any = None
    asks: bool = False
    """Whether its own code names one of the context's questions; what it calls is not looked at."""
    embeds: bool = False
    """Whether its own code or its return type names ``EmbeddedResource``."""

    def bind(self, arguments: dict[str, Any], context: Context) -> functools.partial[Any]:
        """The call that is left to make: arguments are by name, the context is put in."""
        named = dict(arguments)
        if self.context_parameter is not None:
            named[self.context_parameter] = context
        positional = [named.pop(n) for n in _positional_only(self.function) if n in named]
        return functools.partial(self.function, *positional, **named)

    @property
    def internal_parameters(self) -> frozenset[str]:
        """Parameters that are filled in by the runtime and invisible to clients."""
        return frozenset([self.context_parameter] if self.context_parameter else [])

    @property
    def name(self) -> str:
        """The function's own name."""
        return function_name(self.function)

    @property
    def doc(self) -> str:
        """The docstring, without its indentation."""
        return inspect.getdoc(_unwrapped(self.function)) or ""


def inspect_function(function: Callable[..., Any]) -> ComponentFunction:
    """Look at a function or another callable that is about to be registered.

    Raises:
        ImproperlyConfigured: it is no callable, or asks for more than one ``Context``.
    """
    if not callable(function):
        raise ImproperlyConfigured(f"{function!r} is not callable; register a function.")
    if isinstance(function, type):
        raise ImproperlyConfigured(
            f"{function.__qualname__} is a class; register a function, a method of an instance or "
            "an instance with __call__."
        )
    contexts = _context_parameters(function)
    if len(contexts) > 1:
        raise ImproperlyConfigured(
            f"{function_name(function)}() takes {len(contexts)} parameters annotated as Context "
            f"({', '.join(contexts)}); keep one."
        )
    if not contexts and _has_bare_context(function):
        raise ImproperlyConfigured(
            f"{function_name(function)}() takes ctx without an annotation, so clients would have "
            "to pass it; write ctx: Context."
        )
    names, returns = set(_names(function)), return_annotation(function)
    return ComponentFunction(
        function=function,
        is_async=_is_async(function),
        context_parameter=contexts[0] if contexts else None,
        returns=returns,
        asks=bool(contexts) and not QUESTIONS.isdisjoint(names),
        embeds=EMBEDDED in names or EMBEDDED in str(returns),
    )


def function_name(function: Callable[..., Any]) -> str:
    """A callable's name, also for partial objects and instances with ``__call__``."""
    target = _unwrapped(function)
    return getattr(target, "__name__", type(target).__name__)


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _names(function: Callable[..., Any]) -> Iterator[str]:
    """The names of globals and attributes in a function's code and in what is defined within."""
    target: Any = inspect.unwrap(_unwrapped(function))
    code = getattr(target, "__code__", None) or getattr(target.__call__, "__code__", None)
    pending = [code]
    while pending:
        code = pending.pop()
        if isinstance(code, CodeType):
            yield from code.co_names
            # Lambdas and helpers; up to Python 3.11 each comprehension, too.
            pending.extend(code.co_consts)


def _is_async(function: Callable[..., Any]) -> bool:
    target = _unwrapped(function)
    call = getattr(target, "__call__", None)  # noqa: B004 - looks at the method, not callability
    return any(
        asyncio.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)
        for one in (target, call)
    )


@functools.cache
def _positional_only(function: Callable[..., Any]) -> tuple[str, ...]:
    return positional_names(function)


def _context_parameters(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    variadic = [p.name for p in parameters if p.kind in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]
    return [one.name for one in read_parameters(function, skip=variadic) if _is_context(one.hint)]


def _has_bare_context(function: Callable[..., Any]) -> bool:
    found = inspect.signature(function).parameters.get("ctx")
    return found is not None and found.annotation is found.empty


def _is_context(hint: Any) -> bool:
    """Whether a parameter asks for the context, ``Context | None`` among the ways to say so."""
    alternatives = [one for one in get_args(hint) if one is not type(None)] or [hint]
    return all(isinstance(one, type) and issubclass(one, Context) for one in alternatives)
