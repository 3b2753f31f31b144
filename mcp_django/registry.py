"""``Registry``: what a server offers, and the decorators that put it there.

The twin of the admin's site object without its URLs. It knows no caller: who may see or use a
component is decided by ``runtime.policy``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, overload

from django.core.exceptions import ImproperlyConfigured

from mcp_django.components import declare
from mcp_django.components.completion import Completion
from mcp_django.components.component import Component
from mcp_django.components.prompt import Prompt
from mcp_django.components.resource import ReadableComponent, Resource, ResourceTemplate
from mcp_django.components.tool import Tool
from mcp_django.exceptions import AlreadyRegistered, NotRegistered
from mcp_django.protocol.content import Annotations, Icon

F = TypeVar("F", bound=Callable[..., Any])


class Registry:
    """The components of one server, by kind and name."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, ResourceTemplate] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[tuple[str, str, str], Completion] = {}
        self.is_guarded = False

    # Declaring --------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        name: str | None = None,
        /,
        *,
        title: str = "",
        description: str = "",
        read_only: bool | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
        open_world: bool | None = None,
        permission: Any = None,
        scopes: Sequence[str] = (),
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        atomic: bool | None = None,
        timeout: float | None = None,
        slow: bool = False,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        form: type[Any] | None = None,
        serializer: type[Any] | None = None,
        strict_schema: bool = False,
    ) -> Callable[[F], F]: ...

    def tool(self, target: Any = None, /, **options: Any) -> Any:
        """Offer a function as a tool; works bare and called.

        The name is the function's, the description its docstring and the schema its signature,
        unless ``input_schema`` (raw JSON Schema), ``form`` or ``serializer`` says otherwise.

        Raises:
            AlreadyRegistered: the server has a tool of this name.
            ImproperlyConfigured: the declaration cannot work; the message says what to write.
        """
        return self._decorate(target, options, declare.tool)

    def resource(
        self,
        uri: str,
        /,
        *,
        name: str | None = None,
        title: str = "",
        description: str = "",
        mime_type: str | None = None,
        size: int | None = None,
        icons: Sequence[Icon] = (),
        annotations: Annotations | None = None,
        meta: Mapping[str, Any] | None = None,
        permission: Any = None,
        scopes: Sequence[str] = (),
        subscribe: bool = True,
        cache_ttl: timedelta = timedelta(0),
        cache_public: bool = False,
        atomic: bool | None = None,
        timeout: float | None = None,
        slow: bool = False,
    ) -> Callable[[F], F]:
        """Offer a function as the resource of this URI, or of all URIs of this template.

        ``{name}`` matches one path segment, ``{+name}`` any number of them, ``{?a,b}`` an
        optional query (RFC 6570). The function returns text, bytes, a JSON value, one
        ``ResourceContents`` or several of them.
        """
        options = {
            "uri": uri,
            "name": name,
            "title": title,
            "description": description,
            "mime_type": mime_type,
            "size": size,
            "icons": icons,
            "annotations": annotations,
            "meta": meta,
            "permission": permission,
            "scopes": scopes,
            "subscribe": subscribe,
            "cache_ttl": cache_ttl,
            "cache_public": cache_public,
            "atomic": atomic,
            "timeout": timeout,
            "slow": slow,
        }

        if not isinstance(uri, str):
            raise ImproperlyConfigured(
                f"A resource begins with its URI: @mcp.resource('shop://about'), not {uri!r}."
            )

        def decorator(function: F) -> F:
            self.add(declare.resource(function, options))
            return function

        return decorator

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(
        self,
        name: str | None = None,
        /,
        *,
        title: str = "",
        description: str = "",
        template: str | None = None,
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        permission: Any = None,
        scopes: Sequence[str] = (),
        atomic: bool | None = None,
        timeout: float | None = None,
        slow: bool = False,
    ) -> Callable[[F], F]: ...

    def prompt(self, target: Any = None, /, **options: Any) -> Any:
        """Offer a function as a prompt; works bare and called.

        The function returns text, one ``Message`` or a list of both; with ``template`` it returns
        the context for that Django template, which becomes one message of the user.
        """
        return self._decorate(target, options, declare.prompt)

    def completion(self, ref: Callable[..., Any] | str, argument: str, /) -> Callable[[F], F]:
        """Suggest values for an argument of a prompt or template.

        ``ref`` is the decorated function, a prompt's name or a URI template.
        """
        target = self._completable(ref)

        def decorator(function: F) -> F:
            completion = declare.completion(target, argument, function)
            key = (completion.kind, completion.key, completion.argument)
            if key in self.completions:
                raise AlreadyRegistered(f"{key[0]} {key[1]!r} completes {argument!r} already.")
            self.completions[key] = completion
            return function

        return decorator

    def _decorate(
        self, target: Any, options: dict[str, Any], build: Callable[..., Component]
    ) -> Any:
        if callable(target):
            if options:
                raise ImproperlyConfigured(
                    f"Give {target!r} last: decorator({', '.join(options)}=…)(function)."
                )
            self.add(build(target, {}))
            return target
        if target is not None and not isinstance(target, str):
            raise ImproperlyConfigured(f"Expected a function or a name, not {target!r}.")

        def decorator(function: F) -> F:
            self.add(build(function, {"name": target, **options}))
            return function

        return decorator

    # Keeping ----------------------------------------------------------------------------------

    def add(self, component: Component) -> None:
        """Offer a component.

        Raises:
            AlreadyRegistered: one of this kind and name is offered.
        """
        table = self._table(component)
        if component.key in table:
            raise AlreadyRegistered(
                f"There is a {component.kind} {component.key!r} already, from "
                f"{table[component.key].callable.__module__}, and now another from "
                f"{component.callable.__module__}; give one of them another name, or unregister "
                "the first."
            )
        table[component.key] = component
        self.is_guarded = self.is_guarded or component.permission is not None

    def unregister(self, target: Callable[..., Any] | Component) -> None:
        """Take a component away, given itself or its function, with its completions.

        Raises:
            NotRegistered: it is not offered.
        """
        found = [
            c
            for c in self
            # Equal, not identical: each look at a bound method makes a new object.
            if c is target or (not isinstance(target, Component) and c.callable == target)
        ]
        if not found:
            raise NotRegistered(f"{target!r} is not registered here.")
        for component in found:
            del self._table(component)[component.key]
            for key in [k for k in self.completions if k[:2] == (component.kind, component.key)]:
                del self.completions[key]

    def __iter__(self) -> Iterator[Component]:
        yield from self.tools.values()
        yield from self.resources.values()
        yield from self.templates.values()
        yield from self.prompts.values()

    def _table(self, component: Component) -> dict[str, Any]:
        tables: dict[str, dict[str, Any]] = {
            "tool": self.tools,
            "resource": self.resources,
            "resource template": self.templates,
            "prompt": self.prompts,
        }
        return tables[component.kind]

    # Finding ----------------------------------------------------------------------------------

    def find_resource(self, uri: str) -> tuple[ReadableComponent, dict[str, str]] | None:
        """The resource that answers for a URI, with the template's variables.

        A fixed resource beats a template and the most specific template wins (RSC-12).
        """
        resource = self.resources.get(uri)
        if resource is not None:
            return resource, {}
        best: tuple[ResourceTemplate, dict[str, str]] | None = None
        for template in self.templates.values():
            variables = template.template.match(uri)
            if variables is None:
                continue
            if best is None or template.template.specificity > best[0].template.specificity:
                best = template, variables
        return best

    def _completable(self, ref: Callable[..., Any] | str) -> Prompt | ResourceTemplate:
        candidates: list[Prompt | ResourceTemplate] = [
            *self.prompts.values(),
            *self.templates.values(),
        ]
        for component in candidates:
            if ref in (component.callable, component.key):
                return component
        raise NotRegistered(
            f"No prompt or resource template {ref!r} is registered here; declare it before its "
            "completions."
        )
