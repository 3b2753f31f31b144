"""``Registry``: the components of a server, and the decorators that register them.

It corresponds to Django's ``AdminSite``, without URLs. It does not check access: that is done by
``execution.policy``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, overload

from django.core.exceptions import ImproperlyConfigured

from mcp_django.core import declare
from mcp_django.core.catalog import ComponentCollection
from mcp_django.core.component import Component, Prompt
from mcp_django.core.resource import ResourceTemplate
from mcp_django.core.tool import UI, ApprovalMode, TaskAsking, TaskSupport
from mcp_django.exceptions import NotRegistered
from mcp_django.protocol.content import Annotations, Icon

F = TypeVar("F", bound=Callable[..., Any])


class Registry(ComponentCollection):
    """The components of one server, and the decorators that register them."""

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
        enforce: bool = True,
        destructive: bool | None = None,
        idempotent: bool | None = None,
        open_world: bool | None = None,
        permission: Any = None,
        scopes: Sequence[str] = (),
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        atomic: bool | None = None,
        timeout: float | None = None,
        rate: str | Sequence[str] = (),
        log_arguments: bool | None = None,
        sensitive: Sequence[str] = (),
        approval: ApprovalMode = "",
        task: TaskSupport = "",
        ask: TaskAsking = "during",
        polling_fallback: bool = False,
        task_ttl: float | None = None,
        ui: UI | str | None = None,
        slow: bool = False,
        needs: Sequence[str] = (),
        aliases: Sequence[str] = (),
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        form: type[Any] | None = None,
        serializer: type[Any] | None = None,
        strict_schema: bool = False,
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
        return self._register_decorated(target, options, declare.build_tool)

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
        read_only: bool | None = None,
        enforce: bool = True,
        atomic: bool | None = None,
        timeout: float | None = None,
        rate: str | Sequence[str] = (),
        log_arguments: bool | None = None,
        sensitive: Sequence[str] = (),
        slow: bool = False,
        needs: Sequence[str] = (),
        aliases: Sequence[str] = (),
    ) -> Callable[[F], F]:
        """Register a function as the resource with this URI, or as a resource template.

        ``{name}`` matches one path segment, ``{+name}`` any number of them, ``{?a,b}`` an
        optional query (RFC 6570). The function returns text, bytes, a JSON value, one
        ``ResourceContents`` or several of them. With ``read_only=True`` it cannot write to the
        database.
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
            "read_only": read_only,
            "enforce": enforce,
            "atomic": atomic,
            "timeout": timeout,
            "rate": rate,
            "log_arguments": log_arguments,
            "sensitive": sensitive,
            "slow": slow,
            "needs": needs,
            "aliases": aliases,
        }

        if not isinstance(uri, str):
            raise ImproperlyConfigured(
                f"The URI of a resource is {uri!r}; write @mcp.resource('shop://about')."
            )

        def decorator(function: F) -> F:
            self.add(declare.build_resource(function, options))
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
        read_only: bool | None = None,
        enforce: bool = True,
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        permission: Any = None,
        scopes: Sequence[str] = (),
        atomic: bool | None = None,
        timeout: float | None = None,
        rate: str | Sequence[str] = (),
        log_arguments: bool | None = None,
        sensitive: Sequence[str] = (),
        slow: bool = False,
        needs: Sequence[str] = (),
        aliases: Sequence[str] = (),
    ) -> Callable[[F], F]: ...

    def prompt(self, target: Any = None, /, **options: Any) -> Any:
        """Register a function as a prompt; works with and without arguments.

        The function returns text, one ``Message`` or a list of both. With ``template`` it returns
        the context of that Django template, which is rendered to one message with the role user.
        """
        return self._register_decorated(target, options, declare.build_prompt)

    def completion(self, ref: Callable[..., Any] | str, argument: str, /) -> Callable[[F], F]:
        """Register a function that suggests values for an argument of a prompt or template.

        ``ref`` is the decorated function, a prompt's name or a URI template.
        """
        target = self._completion_target(ref)

        def decorator(function: F) -> F:
            self.add_completion(declare.build_completion(target, argument, function))
            return function

        return decorator

    def _register_decorated(
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

        def decorator(function: F) -> F:
            self.add(build(function, {"name": target, **options}))
            return function

        return decorator

    def _completion_target(self, ref: Callable[..., Any] | str) -> Prompt | ResourceTemplate:
        candidates: list[Prompt | ResourceTemplate] = [
            *self.prompts.values(),
            *self.templates.values(),
        ]
        for component in candidates:
            if ref in (component.callable, component.key):
                return component
        raise NotRegistered(
            f"No prompt or resource template {ref!r} is registered on this server; declare it "
            "before its completions."
        )
