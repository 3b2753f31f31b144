"""What tools, resources and prompts have in common: ``Component`` and the function it calls.

The developer's function is inspected once, when it is registered. Prompts and completions are
here too.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, ClassVar, Literal, get_args

from django.core.exceptions import ImproperlyConfigured

from mcp_django.conf import Rate
from mcp_django.core.context import Context
from mcp_django.protocol.content import Icon
from mcp_django.protocol.envelope import check_author_meta
from mcp_django.protocol.errors import check_askable
from mcp_django.protocol.jsonrpc import encode
from mcp_django.schema.arguments import ArgumentSource
from mcp_django.schema.signature import positional_names, read_parameters, return_annotation

# The component's function -------------------------------------------------------------------------

QUESTIONS = frozenset({"ask", "elicit", "elicit_url", "list_roots", "sample"})
_EMBEDDED = "EmbeddedResource"


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
        return _function_name(self.function)

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
            f"{_function_name(function)}() takes {len(contexts)} parameters annotated as Context "
            f"({', '.join(contexts)}); keep one."
        )
    if not contexts and _has_bare_context(function):
        raise ImproperlyConfigured(
            f"{_function_name(function)}() takes ctx without an annotation, so clients would have "
            "to pass it; write ctx: Context."
        )
    names, returns = set(_names(function)), return_annotation(function)
    return ComponentFunction(
        function=function,
        is_async=_is_async(function),
        context_parameter=contexts[0] if contexts else None,
        returns=returns,
        asks=bool(contexts) and not QUESTIONS.isdisjoint(names),
        embeds=_EMBEDDED in names or _EMBEDDED in str(returns),
    )


def _function_name(function: Callable[..., Any]) -> str:
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


# Component ----------------------------------------------------------------------------------------

# RFC 6749, section 3.3: a scope travels in a list that spaces separate, within quotes.
SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A declared tool, resource, resource template or prompt.

    ``permission`` and ``scopes`` narrow what its server lets in (execution.policy reads them);
    ``atomic`` opens a transaction around the function (``None``: as ``ATOMIC_REQUESTS`` says);
    ``timeout`` is in seconds. ``needs`` names what the client must have declared before anything
    runs (``ctx.supports`` has the names). ``read_only`` says that the function changes nothing, and
    unless ``enforce`` is off the runtime sees to it. ``rates`` say how often it may be used;
    ``log_arguments`` puts the values of its arguments into the call log (``None``: as its server
    says), but for those named by ``sensitive``. ``aliases`` are former names (addresses, of what is
    read by URI): it answers to them and is listed under its own. ``kind`` is the specification's
    word for it.
    """

    kind: ClassVar[str]

    name: str
    function: ComponentFunction
    title: str = ""
    description: str = ""
    icons: tuple[Icon, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    permission: Any = None
    scopes: tuple[str, ...] = ()
    atomic: bool | None = None
    timeout: float | None = None
    slow: bool = False
    needs: tuple[str, ...] = ()
    read_only: bool | None = None
    enforce: bool = True
    rates: tuple[Rate, ...] = ()
    log_arguments: bool | None = None
    sensitive: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            check_author_meta(self.meta)
            encode(dict(self.meta))
        except (TypeError, ValueError) as exc:
            raise ImproperlyConfigured(f"{self}: meta: {exc}") from None
        for icon in self.icons:
            self.require(
                isinstance(icon, Icon), f"icons has {icon!r}; write Icon('https://…') for each."
            )
        for scope in self.scopes:
            self.require(
                bool(SCOPE.fullmatch(str(scope))),
                f"{scope!r} is no scope; write printable ASCII without spaces, quotes and \\.",
            )
        for number, alias in enumerate(self.aliases):
            self.require(
                bool(alias) and str(alias) == alias,
                f"aliases has {alias!r}; write each former name as a text.",
            )
            self.require(
                alias != self.key and alias not in self.aliases[:number],
                f"aliases has {alias!r}, which is its name already; leave it out.",
            )
        for option, value in (("read_only", self.read_only or False), ("enforce", self.enforce)):
            self.require(isinstance(value, bool), f"{option} is {value!r}; write True or False.")
        for need in self.needs:
            try:
                check_askable(need)
            except ValueError as exc:
                raise ImproperlyConfigured(f"{self}: needs: {exc}.") from None
        self.require(
            not self.needs or self.function.context_parameter is not None,
            "it needs something of the client and cannot ask: give it a parameter ctx: Context.",
        )
        self.require(
            self.timeout is None or self.timeout > 0,
            f"timeout={self.timeout} leaves no time; give seconds, or leave it out.",
        )

    def require(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001
        """Refuse a declaration that cannot work, naming the component.

        Raises:
            ImproperlyConfigured: it does not hold.
        """
        if not holds:
            raise ImproperlyConfigured(f"{self}: {otherwise}")

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"

    @property
    def key(self) -> str:
        """What identifies the component among those of its kind on a server."""
        return self.name

    @property
    def is_governed(self) -> bool:
        """Whether its database work is limited and kept from writing (execution.query_limits)."""
        return bool(self.read_only) and self.enforce

    @property
    def callable(self) -> Callable[..., Any]:
        """The developer's own function."""
        return self.function.function

    @property
    def origin(self) -> str:
        """Where it comes from, in words: a module, or the class that it was generated for."""
        declaration = getattr(self.callable, "declared_by", None)
        return str(declaration or self.callable.__module__)


# Prompts and completions --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """One argument of a prompt, for the form that a host shows."""

    name: str
    schema: Mapping[str, Any]
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(Component):
    """Messages that a person picks and a function or a Django template writes.

    With ``template`` the function returns that Django template's context.
    """

    kind: ClassVar[str] = "prompt"

    arguments: ArgumentSource
    template: str | None = None

    @property
    def parameters(self) -> list[PromptArgument]:
        """The arguments in the declared order."""
        schema = self.arguments.json_schema
        required = schema.get("required", ())
        return [
            PromptArgument(name=name, schema=spec, required=name in required)
            for name, spec in schema.get("properties", {}).items()
        ]


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
