"""What a function declares: its parameters and result, with every hint resolved.

Sees through `functools.wraps`, `functools.partial`, bound methods and callable objects. Reads
declarations only; whether a hint makes sense as an argument is decided by who turns it into a
schema.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import Parameter, Signature
from types import SimpleNamespace
from typing import Any

from django.core.exceptions import ImproperlyConfigured

AnyCallable = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredParameter:
    """One parameter that a caller may fill."""

    name: str
    hint: Any
    """The resolved annotation, `Annotated` included; `Any` where there is none."""
    default: Any
    """As declared, `inspect.Parameter.empty` for none."""


def read_parameters(
    function: AnyCallable, *, skip: Iterable[str] = ()
) -> tuple[DeclaredParameter, ...]:
    """Return the parameters of a function in order, without those named in `skip`.

    What `functools.partial` has bound by name is bound for good and not a parameter any more.

    Raises:
        ImproperlyConfigured: a hint cannot be resolved, or the function takes any arguments.
    """
    skipped = {*skip, *_bound_names(function)}
    signature = inspect.signature(function)
    return tuple(
        _declared(function, parameter)
        for name, parameter in signature.parameters.items()
        if name not in skipped
    )


def positional_names(function: AnyCallable) -> tuple[str, ...]:
    """Return the parameters that can only be passed by position, in order."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(one.name for one in parameters if one.kind is Parameter.POSITIONAL_ONLY)


def return_annotation(function: AnyCallable) -> Any:
    """Return the resolved annotation of the result, `inspect.Signature.empty` for none.

    Raises:
        ImproperlyConfigured: the hint cannot be resolved.
    """
    hint = inspect.signature(function).return_annotation
    return hint if hint is Signature.empty else _resolve(function, "return", hint)


def name_of(function: AnyCallable) -> str:
    """Return a name for a function by which its author will find it."""
    inner = _innermost(function)
    module = getattr(inner, "__module__", None)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return f"{module}.{name}" if module else str(name)


def _declared(function: AnyCallable, parameter: Parameter) -> DeclaredParameter:
    if parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        raise ImproperlyConfigured(
            f"{name_of(function)} takes {parameter}, and a model has to be told which arguments "
            "there are. Name each one as a parameter of its own."
        )
    has_hint = parameter.annotation is not Parameter.empty
    return DeclaredParameter(
        name=parameter.name,
        hint=_resolve(function, parameter.name, parameter.annotation) if has_hint else Any,
        default=parameter.default,
    )


def _resolve(function: AnyCallable, name: str, hint: Any) -> Any:
    inner = _innermost(function)
    carrier = SimpleNamespace(__annotations__={name: hint})
    try:
        namespace = getattr(inner, "__globals__", {})
        return typing.get_type_hints(carrier, globalns=namespace, include_extras=True)[name]
    except (NameError, AttributeError) as exc:
        raise ImproperlyConfigured(
            f"{name_of(function)} declares {name!r} as {shown(hint)}, which cannot be resolved "
            f"({exc}). Define or import the type at the top level of the module: neither inside "
            "a function nor under TYPE_CHECKING."
        ) from exc


def shown(hint: Any) -> str:
    """Return a hint as it reads in the source."""
    return hint if isinstance(hint, str) else inspect.formatannotation(hint)


def _innermost(function: Any) -> Any:
    """Return the function whose module the hints were written in."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.isroutine(function) or isinstance(function, type):
            return function
        else:
            function = type(function).__call__


def _bound_names(function: Any) -> set[str]:
    if isinstance(function, functools.partial):
        return {*function.keywords, *_bound_names(function.func)}
    return set()
