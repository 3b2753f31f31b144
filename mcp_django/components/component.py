"""``Component``, the base class of tools, resources and prompts, and ``ComponentFunction``.

The developer's function is inspected once, when it is registered. Prompts and completions are
also defined here.
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

from mcp_django.components.context import Context
from mcp_django.conf import Rate
from mcp_django.protocol.content import Icon
from mcp_django.protocol.envelope import check_author_meta
from mcp_django.protocol.errors import check_capability_name
from mcp_django.protocol.jsonrpc import encode
from mcp_django.schema.arguments import ArgumentSource
from mcp_django.schema.secrets import LOG, MaskLimits, is_hidden_field, mask
from mcp_django.schema.signature import positional_names, read_parameters, return_annotation
from mcp_django.schema.structure import Schema

CLIENT_REQUEST_METHODS = frozenset({"ask", "elicit", "elicit_url", "list_roots", "sample"})
_EMBEDDED = "EmbeddedResource"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentFunction:
    """The developer's function, with the information that the runtime needs to call it."""

    function: Callable[..., Any]
    is_async: bool
    context_parameter: str | None
    returns: Any = None
    sends_client_requests: bool = False
    """Whether its own code names one of the context's client requests; functions it calls are not
    inspected."""
    embeds_resources: bool = False
    """Whether its own code or its return type names ``EmbeddedResource``."""
    takes_arguments: bool = False
    """Whether it is called with just the arguments of the client, by their names."""

    def bind(self, arguments: dict[str, Any], context: Context | None) -> functools.partial[Any]:
        """Return the call as a partial, given arguments by name.

        The context is added if the function has a parameter for it; otherwise it is not used.
        """
        keywords = dict(arguments)
        if self.context_parameter is not None:
            keywords[self.context_parameter] = context
        names = _positional_only_names(self.function)
        if not names:
            return functools.partial(self.function, **keywords)
        positional = [keywords.pop(n) for n in names if n in keywords]
        return functools.partial(self.function, *positional, **keywords)

    @property
    def internal_parameters(self) -> frozenset[str]:
        """The parameters that the runtime fills in and that clients do not see."""
        return frozenset([self.context_parameter] if self.context_parameter else [])

    @property
    def name(self) -> str:
        """The name of the function."""
        return _function_name(self.function)

    @property
    def doc(self) -> str:
        """The docstring, without its indentation."""
        return inspect.getdoc(_unwrap_partial(self.function)) or ""


def inspect_function(function: Callable[..., Any]) -> ComponentFunction:
    """Return the ``ComponentFunction`` of a function or another callable.

    Raises:
        ImproperlyConfigured: it is not a callable, is a class, has several ``Context`` parameters,
            or has a parameter ``ctx`` without an annotation.
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
            f"{_function_name(function)}() has {len(contexts)} parameters annotated as Context "
            f"({', '.join(contexts)}); keep one."
        )
    parameter = inspect.signature(function).parameters.get("ctx")
    if not contexts and parameter is not None and parameter.annotation is parameter.empty:
        raise ImproperlyConfigured(
            f"{_function_name(function)}() has a parameter ctx without an annotation, so clients "
            "would have to pass it; write ctx: Context."
        )
    names, returns = set(_iter_code_names(function)), return_annotation(function)
    target = _unwrap_partial(function)
    call = getattr(target, "__call__", None)  # noqa: B004 - looks at the method, not callability
    return ComponentFunction(
        function=function,
        is_async=any(
            asyncio.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate)
            for candidate in (target, call)
        ),
        context_parameter=contexts[0] if contexts else None,
        returns=returns,
        sends_client_requests=bool(contexts) and not CLIENT_REQUEST_METHODS.isdisjoint(names),
        embeds_resources=_EMBEDDED in names or _EMBEDDED in str(returns),
        takes_arguments=not contexts and not _positional_only_names(function),
    )


def _function_name(function: Callable[..., Any]) -> str:
    """Return a callable's name, also for partial objects and instances with ``__call__``."""
    target = _unwrap_partial(function)
    return getattr(target, "__name__", type(target).__name__)


def _unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _iter_code_names(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the global and attribute names in the code of a function and its nested functions."""
    target: Any = inspect.unwrap(_unwrap_partial(function))
    code = getattr(target, "__code__", None) or getattr(target.__call__, "__code__", None)
    pending = [code]
    while pending:
        code = pending.pop()
        if isinstance(code, CodeType):
            yield from code.co_names
            # Nested functions and lambdas; up to Python 3.11 comprehensions, too.
            pending.extend(code.co_consts)


@functools.cache
def _positional_only_names(function: Callable[..., Any]) -> tuple[str, ...]:
    return positional_names(function)


def _context_parameters(function: Callable[..., Any]) -> list[str]:
    """Return the parameters whose type hint is ``Context`` or a union of it with ``None``."""
    parameters = inspect.signature(function).parameters.values()
    variadic = [p.name for p in parameters if p.kind in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]
    contexts = []
    for parameter in read_parameters(function, skip=variadic):
        hints = [hint for hint in get_args(parameter.hint) if hint is not type(None)]
        if all(
            isinstance(hint, type) and issubclass(hint, Context)
            for hint in hints or [parameter.hint]
        ):
            contexts.append(parameter.name)
    return contexts


# RFC 6749, section 3.3: scopes are sent as a list separated by spaces, within quotes.
SCOPE_PATTERN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A declared tool, resource, resource template or prompt.

    ``permission`` and ``scopes`` are required in addition to those of the server
    (``execution.policy`` checks them). ``atomic`` opens a transaction around the function
    (``None``: as ``ATOMIC_REQUESTS``). ``timeout`` is in seconds. ``needs`` names the capabilities
    that the client must have declared before anything runs (``ctx.supports`` lists the names).
    ``read_only`` declares that the function changes nothing; the runtime enforces it unless
    ``enforce`` is false. ``rates`` are its rate limits. ``log_arguments`` adds the values of its
    arguments to the call log (``None``: as its server), except those named in ``sensitive``.
    ``aliases`` are former names, or former URIs of resources and templates: they can still be
    used, but are not listed. ``kind`` is the specification's term for it.
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
                bool(SCOPE_PATTERN.fullmatch(str(scope))),
                f"{scope!r} is not a valid scope; write printable ASCII without spaces, quotes "
                "and \\.",
            )
        for number, alias in enumerate(self.aliases):
            self.require(
                bool(alias) and str(alias) == alias,
                f"aliases contains {alias!r}; write each former name as a non-empty string.",
            )
            self.require(
                alias != self.key and alias not in self.aliases[:number],
                f"aliases contains {alias!r}, which is its name or is repeated; remove it.",
            )
        for option, value in (("read_only", self.read_only or False), ("enforce", self.enforce)):
            self.require(isinstance(value, bool), f"{option} is {value!r}; write True or False.")
        for need in self.needs:
            try:
                check_capability_name(need)
            except ValueError as exc:
                raise ImproperlyConfigured(f"{self}: needs: {exc}.") from None
        self.require(
            not self.needs or self.function.context_parameter is not None,
            "needs is set, but the function cannot send requests to the client; add a parameter "
            "ctx: Context.",
        )
        self.require(
            self.timeout is None or self.timeout > 0,
            f"timeout is {self.timeout}; write a positive number of seconds, or leave it out.",
        )

    def require(self, condition: bool, message: str) -> None:  # noqa: FBT001
        """Raise an error that names the component unless a condition is true.

        Raises:
            ImproperlyConfigured: the condition is false.
        """
        if not condition:
            raise ImproperlyConfigured(f"{self}: {message}")

    @property
    def problem(self) -> str:
        """Why the component cannot be described, so that lists leave it out; empty if it can.

        Reading it may run code of the site that builds a form or a serializer.
        """
        return str(getattr(getattr(self, "arguments", None), "problem", ""))

    def problem_for(self, principal: Any) -> str:
        """Return why the component cannot be described to a caller; empty if it can."""
        return self.problem

    @property
    def arguments_schema(self) -> Schema:
        """The schema of the arguments; empty if it has none."""
        source: ArgumentSource | None = getattr(self, "arguments", None)
        return source.json_schema if source is not None else {}

    @property
    def has_secrets(self) -> bool:
        """Whether an argument is secret, so that texts that contain it are not logged."""
        properties = self.arguments_schema.get("properties", {})
        return bool(self.sensitive) or any(
            is_hidden_field(name, member) for name, member in properties.items()
        )

    def mask(self, values: Any, *, limits: MaskLimits = LOG) -> Any:
        """Return arguments, or a result with the same names, with their secrets hidden."""
        return mask(values, self.arguments_schema, sensitive=self.sensitive, limits=limits)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"

    @property
    def key(self) -> str:
        """The identifier of the component, unique per kind and server."""
        return self.name

    @property
    def has_read_only_limits(self) -> bool:
        """Whether the read-only limits apply to its queries (``execution.query_limits``)."""
        return bool(self.read_only) and self.enforce

    @property
    def callable(self) -> Callable[..., Any]:
        """The developer's function."""
        return self.function.function

    @property
    def origin(self) -> str:
        """Where it is declared: a module, or the declaration that it was generated from."""
        declaration = getattr(self.callable, "declared_by", None)
        return str(declaration or self.callable.__module__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """One argument of a prompt, as ``prompts/list`` describes it."""

    name: str
    schema: Mapping[str, Any]
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(Component):
    """A prompt: messages that the user selects and a function or a Django template generates.

    With ``template`` the function returns the context of that Django template.
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
    """A completion: suggests values for one argument of a prompt or resource template.

    The function takes the typed ``value`` as its first parameter; a ``Context`` and parameters
    named like other arguments (the values chosen so far) are optional. It returns strings, most
    relevant first.
    """

    kind: Literal["prompt", "resource template"]
    key: str
    argument: str
    function: ComponentFunction
