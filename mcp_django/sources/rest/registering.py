"""``RegisteringRest``: how a server takes the views of REST framework, once they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcp_django.core.registry import Registry
from mcp_django.core.tool import Tool

if TYPE_CHECKING:
    from rest_framework.views import APIView
    from rest_framework.viewsets import ViewSetMixin


class RegisteringRest(Registry):
    """A registry that takes REST views."""

    def __init__(self) -> None:
        super().__init__()
        self._rest: dict[Any, list[Tool]] = {}

    def register_viewset(
        self,
        viewset: type[ViewSetMixin],
        /,
        *,
        basename: str | None = None,
        actions: Sequence[str] | None = None,
        name: str = "",
        plural: str = "",
        names: Mapping[str, str] | None = None,
        descriptions: Mapping[str, str] | None = None,
        serializers: Mapping[str, Any] | None = None,
        url_kwargs: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        urlconf: str | None = None,
        version: str = "",
        permission: Any = None,
        scopes: Sequence[str] = (),
        timeout: float | None = None,
    ) -> None:
        """Offer actions of a viewset as tools: those that list and retrieve, unless named.

        The real view answers a real request: its permissions, throttles, filters, pagination and
        serializers hold; who calls is already known, so its authentication is not asked.
        ``basename`` is the router's, with a namespace in front where there is one. Tools are named
        after it, or after ``name`` and ``plural``; ``names``, ``descriptions`` and ``serializers``
        are by action. ``url_kwargs`` says which variables the URL has besides the object's own
        (``{"order_pk": int}``), ``fixed`` gives them values, and ``version`` asks for one.
        ``urlconf`` has its URLs, where a middleware gives some hosts URLs of their own.

        Raises:
            AlreadyRegistered: a tool of one of these names is offered.
            ImproperlyConfigured: the viewset has no such action, or it takes no arguments that JSON
                could hold.
        """
        from mcp_django.sources.rest.viewset import viewset_tools

        tools = viewset_tools(
            viewset,
            basename=basename,
            actions=actions,
            name=name,
            plural=plural,
            names=names,
            descriptions=descriptions,
            serializers=serializers,
            url_kwargs=url_kwargs or {},
            fixed=fixed or {},
            urlconf=urlconf,
            version=version,
            permission=permission,
            scopes=scopes,
            timeout=timeout,
        )
        self._add_rest(viewset, tools)

    def register_api_view(
        self,
        view: type[APIView] | Callable[..., Any],
        /,
        *,
        methods: Sequence[str] = ("get",),
        name: str = "",
        title: str = "",
        description: str = "",
        url_name: str = "",
        serializer: type[Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        read_only: bool | None = None,
        url_kwargs: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        urlconf: str | None = None,
        version: str = "",
        permission: Any = None,
        scopes: Sequence[str] = (),
        timeout: float | None = None,
    ) -> None:
        """Offer methods of a REST view as tools: GET, unless named.

        ``view`` is an ``APIView``, what its ``as_view`` made or a function under ``@api_view``.
        ``serializer`` or ``input_schema`` says what it reads, where it is no generic view: of the
        body, or of the query for a GET. ``url_name`` chooses one of several URLs; the rest is as
        for ``register_viewset``.

        Raises:
            AlreadyRegistered: a tool of this name is offered.
            ImproperlyConfigured: the view has no such method, or it takes no arguments that JSON
                could hold.
        """
        from mcp_django.sources.rest.api_view import api_view_tools

        tools = api_view_tools(
            view,
            methods=methods,
            name=name,
            title=title,
            description=description,
            url_name=url_name,
            serializer=serializer,
            input_schema=input_schema,
            read_only=read_only,
            url_kwargs=url_kwargs or {},
            fixed=fixed or {},
            urlconf=urlconf,
            version=version,
            permission=permission,
            scopes=scopes,
            timeout=timeout,
        )
        self._add_rest(view, tools)

    def _add_rest(self, view: Any, tools: Iterable[Tool]) -> None:
        added: list[Tool] = []
        try:
            # All of them are made before the first is offered.
            for tool in list(tools):
                self.add(tool)
                added.append(tool)
        except BaseException:
            for tool in added:
                super().unregister(tool)
            raise
        self._rest.setdefault(view, []).extend(added)

    def _forget_rest(self, view: Any) -> bool:
        """Take away what a view gave, if it gave anything."""
        known = next((one for one in self._rest if one is view), None)
        if known is None:
            return False
        for tool in self._rest.pop(known):
            if self.tools.get(tool.name) is tool:
                super().unregister(tool)
        return True
