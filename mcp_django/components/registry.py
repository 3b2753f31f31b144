"""``Registry``: the components of a server, and the decorators that register them.

It corresponds to ``AdminSite._registry``. It does not check access: that is done by
``execution.policy``. ``Registrar`` is the base class of ``MCPServer`` that has the decorators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, Unpack, overload

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model

from mcp_django.components import declare
from mcp_django.components.component import Completion, Component, Prompt
from mcp_django.components.options import PromptOptions, ResourceOptions, ToolOptions
from mcp_django.components.resource import (
    READABLE_KINDS,
    Resource,
    ResourceTemplate,
    UIResource,
    build_app_page,
)
from mcp_django.components.tool import Tool
from mcp_django.exceptions import AlreadyRegistered, NotRegistered
from mcp_django.protocol.uritemplate import lower_scheme

F = TypeVar("F", bound=Callable[..., Any])


class Registry:
    """The components of one server that code declares, by kind and name.

    ``server`` is the server's name, which is part of generated URIs.
    """

    def __init__(self, server: str) -> None:
        self.server = server
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, ResourceTemplate] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[tuple[str, str, str], Completion] = {}
        self._aliases: dict[tuple[str, str], Component] = {}
        self.declarations: dict[Any, list[Component]] = {}
        """The declarations of registered models, each with its components."""
        self.views: dict[Any, list[Component]] = {}
        """The registered views of REST framework, each with its tools."""
        self.generation = 0
        """Incremented by each change, so that caches derived from the tables can detect it."""

    def add(self, component: Component) -> UIResource | None:
        """Register a component; return the page of a tool's MCP App, which must be added next.

        Raises:
            AlreadyRegistered: a component of this kind has the same name or alias.
        """
        if isinstance(component, Tool) and component.ui is not None:
            component = replace(
                component, ui=component.ui.with_default_uri(self.server, component.name)
            )
        table = self._table(component)
        if component.key in table:
            raise AlreadyRegistered(
                f"The {component.kind} {component.key!r} is already registered, from "
                f"{table[component.key].origin}, and {component.origin} declares another one. "
                "Rename one of them (in a ModelTools class, set name and plural), or unregister "
                "the first."
            )
        for name in (component.key, *component.aliases):
            other = self.find_by_name(component.kind, name)
            if other is not None:
                raise AlreadyRegistered(
                    f"The {other} from {other.origin} already has the name or alias {name!r}, "
                    f"which the {component} from {component.origin} also declares. Rename one of "
                    "them, or remove the name from aliases=."
                )
        table[component.key] = component
        for alias in component.aliases:
            self._aliases[component.kind, alias] = component
        self.generation += 1
        return build_app_page(component, self.server) if isinstance(component, Tool) else None

    def find_by_name(self, kind: str, name: str) -> Component | None:
        """Return the component of a kind with this name, URI or alias."""
        if kind in READABLE_KINDS:
            name = lower_scheme(name)
        component: Component | None = self._tables().get(kind, {}).get(name)
        return component or self._aliases.get((kind, name))

    def uris_of(self, uri: str) -> Iterator[str]:
        """Yield a URI and the former URIs (aliases) of the same resource."""
        uri = lower_scheme(uri)
        yield uri
        if (resource := self.resources.get(uri)) is not None:
            yield from resource.aliases
        for template in self.templates.values():
            values = template.template.match(uri) if template.alias_templates else None
            for former in template.alias_templates if values is not None else ():
                # If a former template cannot express the values, the resource had no such URI.
                with suppress(ValueError):
                    yield former.expand(values or {})

    def add_completion(self, completion: Completion) -> None:
        """Register a completion, which suggests values for an argument.

        Raises:
            AlreadyRegistered: the argument already has a completion.
        """
        key = (completion.kind, completion.key, completion.argument)
        if key in self.completions:
            raise AlreadyRegistered(
                f"The argument {key[2]!r} of {key[0]} {key[1]!r} already has a completion."
            )
        self.completions[key] = completion
        self.generation += 1

    def unregister(self, target: Callable[..., Any] | Component) -> None:
        """Unregister a component and its completions; ``target`` is the component or its function.

        Raises:
            NotRegistered: it is not registered.
        """
        if isinstance(target, Component):
            # ``add`` stores a copy of a tool with an MCP App, which has the URI of the app page.
            components = [
                c
                for c in self
                if c is target
                or (c.function is target.function and c.key == target.key and c.kind == target.kind)
            ]
        else:
            # Equal, not identical: each access to a bound method creates a new object.
            components = [c for c in self if c.callable == target]
        if not components:
            raise NotRegistered(f"{target!r} is not registered on this server.")
        self.generation += 1
        tools = {c.name for c in components if isinstance(c, Tool)}
        for component in [
            *components,
            *(c for c in self.app_pages if c.tool in tools and c not in components),
        ]:
            del self._table(component)[component.key]
            for alias in component.aliases:
                del self._aliases[component.kind, alias]
            for key in [k for k in self.completions if k[:2] == (component.kind, component.key)]:
                del self.completions[key]

    def declarations_of(self, model: type[Model]) -> list[Any]:
        """Return the declarations of a model, including those of its proxy models."""
        concrete = model._meta.concrete_model
        return [
            declaration
            for declaration in self.declarations
            if declaration.model._meta.concrete_model is concrete
        ]

    def __iter__(self) -> Iterator[Component]:
        yield from self.tools.values()
        yield from self.resources.values()
        yield from self.templates.values()
        yield from self.prompts.values()

    @property
    def app_pages(self) -> list[UIResource]:
        """The MCP App pages that tools declare."""
        return [
            resource for resource in self.resources.values() if isinstance(resource, UIResource)
        ]

    def _table(self, component: Component) -> dict[str, Any]:
        return self._tables()[component.kind]

    def _tables(self) -> dict[str, dict[str, Any]]:
        return {
            "tool": self.tools,
            "resource": self.resources,
            "resource template": self.templates,
            "prompt": self.prompts,
        }


class Registrar:
    """The base class of ``MCPServer``, and of temporary substitutes for a server.

    Its registry contains the components that are added to it.
    """

    name: str
    generated_scopes: bool | str
    """See ``MCPServer``."""
    registry: Registry

    def add(self, component: Component) -> None:
        """Register a component.

        Raises:
            AlreadyRegistered: a component of this kind has the same name or alias.
        """
        self.registry.add(component)

    def declarations_of(self, model: type[Model]) -> list[Any]:
        """Return the declarations of a model, including those of its proxy models."""
        return self.registry.declarations_of(model)

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self, name: str | None = None, /, **options: Unpack[ToolOptions]
    ) -> Callable[[F], F]: ...

    def tool(self, target: Any = None, /, **options: Any) -> Any:
        """Register a function as a tool; works with and without arguments.

        By default the name is the function's, the description its docstring, and the schema is
        derived from its signature; ``input_schema`` (a JSON Schema), ``form`` or ``serializer``
        replaces the schema. ``ui`` is the Django template in which hosts with MCP Apps show the
        results.

        Raises:
            AlreadyRegistered: the server already has a tool with this name.
            ImproperlyConfigured: the declaration is invalid; the message says what to write.
        """
        return self._decorate(target, options, declare.build_tool)

    def resource(self, uri: str, /, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function as the resource with this URI, or as a resource template.

        ``{name}`` matches one path segment, ``{+name}`` any number of them, ``{?a,b}`` an
        optional query (RFC 6570). The function returns text, bytes, a JSON value, one
        ``ResourceContents`` or several of them. With ``read_only=True`` it cannot write to the
        database.

        Raises:
            AlreadyRegistered: the server already has a resource with this URI.
            ImproperlyConfigured: the declaration is invalid; the message says what to write.
        """
        if not isinstance(uri, str):
            raise ImproperlyConfigured(
                f"The URI of a resource is {uri!r}; write @mcp.resource('shop://about')."
            )

        def decorator(function: F) -> F:
            self.add(declare.build_resource(function, uri, options))
            return function

        return decorator

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(
        self, name: str | None = None, /, **options: Unpack[PromptOptions]
    ) -> Callable[[F], F]: ...

    def prompt(self, target: Any = None, /, **options: Any) -> Any:
        """Register a function as a prompt; works with and without arguments.

        The function returns text, one ``Message`` or a list of both. With ``template`` it returns
        the context of that Django template, which is rendered to one message with the role user.

        Raises:
            AlreadyRegistered: the server already has a prompt with this name.
            ImproperlyConfigured: the declaration is invalid; the message says what to write.
        """
        return self._decorate(target, options, declare.build_prompt)

    def completion(self, ref: Callable[..., Any] | str, argument: str, /) -> Callable[[F], F]:
        """Register a function that suggests values for an argument of a prompt or template.

        ``ref`` is the decorated function, a prompt's name or a URI template.

        Raises:
            AlreadyRegistered: the argument already has a completion.
            NotRegistered: no prompt or resource template of this name is declared.
        """
        target = _completion_target(self.registry, ref)

        def decorator(function: F) -> F:
            self.registry.add_completion(declare.build_completion(target, argument, function))
            return function

        return decorator

    def _decorate(
        self, target: Any, options: dict[str, Any], build: Callable[..., Component]
    ) -> Any:
        if callable(target):
            if options:
                raise ImproperlyConfigured(
                    f"Pass the function after the options: "
                    f"decorator({', '.join(options)}=…)({target!r})."
                )
            self.add(build(target, {}))
            return target
        if target is not None and not isinstance(target, str):
            raise ImproperlyConfigured(f"The argument is {target!r}; pass a function or a name.")

        if target and options.get("name"):
            raise ImproperlyConfigured(
                f"The name is given twice, as {target!r} and as name={options['name']!r}; keep one."
            )
        options = {**options, "name": target} if target else options

        def decorator(function: F) -> F:
            self.add(build(function, options))
            return function

        return decorator


def _completion_target(
    registry: Registry, ref: Callable[..., Any] | str
) -> Prompt | ResourceTemplate:
    candidates: list[Prompt | ResourceTemplate] = [
        *registry.prompts.values(),
        *registry.templates.values(),
    ]
    for component in candidates:
        key = (
            lower_scheme(ref) if isinstance(ref, str) and component.kind in READABLE_KINDS else ref
        )
        if key in (component.callable, component.key):
            return component
    raise NotRegistered(
        f"No prompt or resource template {ref!r} is registered on this server; declare it "
        "before its completions."
    )
