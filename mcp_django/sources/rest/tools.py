"""From an endpoint to a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from rest_framework.versioning import NamespaceVersioning, URLPathVersioning

from mcp_django.core.tool import Tool
from mcp_django.schema.compiled import RawOutput
from mcp_django.sources.rest.body import media_type_of
from mcp_django.sources.rest.call import RestCall
from mcp_django.sources.rest.endpoint import Endpoint
from mcp_django.sources.rest.inputs import RestArguments
from mcp_django.sources.rest.outputs import output_schema
from mcp_django.sources.rest.routing import Routes

CHANGING = frozenset({"update", "partial_update"})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What all tools of one registration share."""

    url_kwargs: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    urlconf: str | None = None
    version: str = ""
    permission: Any = None
    scopes: Sequence[str] = ()
    timeout: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.scopes, str):
            raise ImproperlyConfigured(f"scopes is a list: write scopes=[{self.scopes!r}].")
        for name, given in (("url_kwargs", self.url_kwargs), ("fixed", self.fixed)):
            if not isinstance(given, Mapping):
                raise ImproperlyConfigured(f"{name} is a dictionary, not {given!r}.")
        both = [name for name in self.url_kwargs if name in self.fixed]
        if both:
            raise ImproperlyConfigured(
                f"{both[0]!r} is fixed and an argument; keep it in one of fixed and url_kwargs."
            )


def rest_tool(
    endpoint: Endpoint,
    options: Options,
    *,
    name: str,
    description: str,
    title: str = "",
    namespace: str = "",
    serializer: Any = None,
    input_schema: Mapping[str, Any] | None = None,
    read_only: bool | None = None,
) -> Tool:
    """The tool of one endpoint.

    Raises:
        ImproperlyConfigured: it cannot be called with arguments; the message says what to write.
    """
    fixed = _fixed(endpoint, options)
    arguments = RestArguments(
        endpoint,
        url_kwargs=options.url_kwargs,
        fixed=fixed,
        serializer=serializer,
        input_schema=input_schema,
    )
    schema = output_schema(endpoint)
    call = RestCall(
        endpoint,
        arguments,
        routes=Routes(
            endpoint,
            namespace=namespace or _space(endpoint, options),
            urlconf=options.urlconf,
        ),
        fixed=fixed,
        version=options.version,
        media_type=media_type_of(endpoint) if arguments.body_shape is not None else "",
    )
    return Tool(
        name=name,
        title=title,
        description=description,
        function=call.function,
        arguments=arguments,
        output=None if schema is None else RawOutput(schema),
        permission=options.permission,
        scopes=tuple(options.scopes),
        timeout=options.timeout,
        # The view opens what ATOMIC_REQUESTS says by itself, and what it answers with an error
        # rolls that back. It is the site's own code, so it is never governed.
        atomic=False,
        enforce=False,
        **_hints(endpoint, read_only=read_only),
    )


def _hints(endpoint: Endpoint, *, read_only: bool | None) -> dict[str, Any]:
    """What the verb says of the tool; another POST may do anything."""
    if read_only is None and endpoint.is_reading:
        read_only = True
    if read_only:
        return {"read_only": True}
    if endpoint.method == "delete":
        return {"read_only": False, "destructive": True, "idempotent": True}
    if endpoint.method in {"put", "patch"} or endpoint.action in CHANGING:
        return {"read_only": False, "destructive": True, "idempotent": True}
    if endpoint.action == "create" and not endpoint.is_extra:
        return {"read_only": False, "destructive": False}
    return {"read_only": False}


def _fixed(endpoint: Endpoint, options: Options) -> dict[str, Any]:
    scheme = endpoint.view_class.versioning_class
    if options.version and scheme is not None and issubclass(scheme, URLPathVersioning):
        return {str(scheme.version_param): options.version, **options.fixed}
    return dict(options.fixed)


def _space(endpoint: Endpoint, options: Options) -> str:
    scheme = endpoint.view_class.versioning_class
    is_space = scheme is not None and issubclass(scheme, NamespaceVersioning)
    return options.version if is_space else ""
