"""``UIResource``: the page of a tool's view, a Django template rendered for whoever reads it.

A host may fetch it long before the tool is called and keep it, so it holds no data of a call:
those reach it over the bridge. MCP Apps (SEP-1865, 2026-01-26), "UI Resource Format".
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

from django.conf import settings
from django.contrib.auth.context_processors import PermWrapper
from django.template.loader import get_template

from mcp_django.components.function import inspect_function
from mcp_django.components.resource import Resource
from mcp_django.components.tool import Tool
from mcp_django.components.ui import MIME_TYPE, UI, address
from mcp_django.conf import get_settings
from mcp_django.context import Context
from mcp_django.protocol.content import ResourceContents

logger = logging.getLogger("mcp_django")


@dataclass(frozen=True, slots=True, kw_only=True)
class UIResource(Resource):
    """The page of a view. Who may not see its tool may not read it."""

    tool: str
    """The name of the tool that declares it."""
    ui: UI

    @property
    def is_of_any_host(self) -> bool:
        """Whether whoever asks decides where the page loads from, so that it is for him alone."""
        return not get_settings().base_url and "*" in settings.ALLOWED_HOSTS


def resource_of(tool: Tool, server: str) -> UIResource | None:
    """The page that comes with a tool of this server, if it declares one.

    An address that is made of the tool's name has former ones as the tool has former names.
    """
    ui = tool.ui
    if ui is None or not ui.template:
        return None
    is_made_of_name = ui.uri == address(server, tool.name)
    return UIResource(
        name=tool.name,
        function=inspect_function(page_function(ui, tool)),
        title=tool.title,
        description=f"The view of the tool {tool.name}.",
        meta=ui.of_view(),
        permission=tool.permission,
        scopes=tool.scopes,
        read_only=True,
        mime_type=MIME_TYPE,
        subscribe=False,
        cache_ttl=ui.cache_ttl,
        cache_public=ui.cache_public,
        uri=ui.uri,
        aliases=tuple(address(server, one) for one in tool.aliases) if is_made_of_name else (),
        tool=tool.name,
        ui=ui,
    )


def page_function(ui: UI, tool: Tool) -> Any:
    """The function behind the page, which tells where it comes from as its tool does."""

    def render(ctx: Context) -> ResourceContents:
        return page(ui, tool.name, ctx)

    render.__name__ = render.__qualname__ = tool.function.name
    render.__module__ = tool.callable.__module__
    return render


def page(ui: UI, tool: str, ctx: Context) -> ResourceContents:
    """The page, with what it may load from this site.

    The template has ``tool`` (its name), ``server``, and ``user`` and ``perms`` of the caller;
    where there is a request, also what the context processors of the site add.

    Raises:
        TemplateDoesNotExist: a system check says so before.
    """
    # Its own, since those of the request may be of nobody: a bearer signs in to no site.
    values = {
        "tool": tool,
        "server": ctx.server,
        "user": ctx.user,
        "perms": PermWrapper(ctx.user),
    }
    request = ctx.request
    html = str(get_template(ui.template).render(values, request))
    base = get_settings().base_url or ("" if request is None else request.build_absolute_uri("/"))
    html, origins = with_addresses(html, base)
    return ResourceContents(html, mime_type=MIME_TYPE, meta=ui.of_view(origins=origins))


def with_addresses(html: str, base: str) -> tuple[str, tuple[str, ...]]:
    """A page whose static and media files have whole addresses, and the origins of those.

    It is shown elsewhere, where ``/static/`` is another site's or nobody's. Without a ``base`` it
    is left as it is.
    """
    origins: dict[str, None] = {}
    for prefix in _prefixes():
        parts = urlsplit(prefix)
        if parts.netloc:
            if prefix in html:
                origins[_origin(parts.scheme or "https", parts.netloc)] = None
            continue
        # Where an address may begin: within quotes, in url(), in an attribute without quotes.
        found = re.compile(rf"""(?<=["'(=]){re.escape(prefix)}""")
        if not found.search(html):
            continue
        if not base:
            logger.warning(
                "A view loads from %s, which has no whole address here: set BASE_URL of "
                "MCP_DJANGO.",
                prefix,
            )
            continue
        html = found.sub(partial(_whole, urljoin(base, prefix)), html)
        own = urlsplit(base)
        origins[_origin(own.scheme, own.netloc)] = None
    return html, tuple(origins)


def _whole(address: str, match: re.Match[str]) -> str:
    return address


def _origin(scheme: str, host: str) -> str:
    return f"{scheme}://{host}"


def _prefixes() -> tuple[str, ...]:
    """Where the site keeps files; a root is none, since every path begins with it."""
    places = (settings.STATIC_URL, settings.MEDIA_URL)
    return tuple(dict.fromkeys(str(one) for one in places if one and str(one) != "/"))
