"""The pages of one server in the admin, beside its form: each a module that registers itself here.

A page of the slug ``try`` is at ``…/mcp_django/server/PK/try/`` and everything below, is reversed
as ``admin:mcp_django_server_try``, and has a button on the page of its server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponseBase

from mcp_django.models import Server
from mcp_django.server import MCPServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request for a page of one server, by somebody who has its permission.

    ``rest`` is what follows the slug in the path, without slashes around it; ``context`` is what
    every page of the admin site has, with ``title``, ``opts`` and ``row`` of this one.
    """

    request: HttpRequest
    row: Server
    server: MCPServer
    rest: str
    context: dict[str, Any]


View = Callable[[Visit], HttpResponseBase]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of each server; ``permission`` is a codename of this app, as ``view_call``."""

    slug: str
    title: Any
    permission: str
    view: View


PAGES: dict[str, Page] = {}
"""By slug, in the order of their buttons."""


def page(slug: str, *, title: Any, permission: str) -> Callable[[View], View]:
    """Make a function a page of each server."""

    def decorator(view: View) -> View:
        PAGES[slug] = Page(slug=slug, title=title, permission=permission, view=view)
        return view

    return decorator
