"""Checks of the views of tools: their templates, where they lead, and what a host would block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template

from mcp_django.core.tool import MIME_TYPE, UI, Tool
from mcp_django.server import MCPServer, all_servers

# Elements that load what they name; a link that somebody follows loads nothing into the page.
LOADED = re.compile(
    r"""<(?P<tag>script|img|link|iframe|source|video|audio|embed)\b[^>]*?\s(?:src|href)\s*=\s*["']?"""
    r"""(?P<url>(?:https?:)?//[^\s"'>{]+)""",
    re.IGNORECASE,
)


def check_views_of_tools(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E015: the template is missing or broken. E016: a link to no view. W018: blocked files."""
    return [
        problem
        for server in all_servers()
        for tool in server.tools.values()
        if tool.ui is not None
        for problem in _problems(server, tool, tool.ui)
    ]


def _problems(server: MCPServer, tool: Tool, ui: UI) -> Iterator[CheckMessage]:
    if not ui.template:
        yield from _link_problems(server, tool, ui)
        return
    try:
        found = get_template(ui.template)
    except (TemplateDoesNotExist, TemplateSyntaxError) as exc:
        problem = "is not found" if isinstance(exc, TemplateDoesNotExist) else "cannot be read"
        detail = "" if isinstance(exc, TemplateDoesNotExist) else f": {exc}"
        yield Error(
            f"The view of the {tool} is the template {ui.template!r}, which {problem}{detail}.",
            hint="Put it in a templates directory of an installed app.",
            obj=server,
            id="mcp_django.E015",
        )
        return
    # Only Django's own engine keeps what it read.
    source = str(getattr(getattr(found, "template", None), "source", ""))
    for origin, option in sorted(_blocked(source, ui)):
        yield checks.Warning(
            f"The view of the {tool} loads from {origin}, which hosts block.",
            hint=f"Write UI({ui.template!r}, {option}=[{origin!r}]), or serve the file yourself "
            "with {% static %}.",
            obj=server,
            id="mcp_django.W018",
        )


def _link_problems(server: MCPServer, tool: Tool, ui: UI) -> Iterator[CheckMessage]:
    if not ui.uri:
        return
    found = server.available.find_resource(ui.uri)
    if found is not None and found[0].mime_type == MIME_TYPE:
        return
    problem = "is no view" if found is not None else "is not there"
    yield Error(
        f"The {tool} shows its results in {ui.uri}, which {problem}.",
        hint="Give the template in its place, name the view of another tool of the server, or "
        f"declare a resource at it with mime_type={MIME_TYPE!r}.",
        obj=server,
        id="mcp_django.E016",
    )


def _blocked(source: str, ui: UI) -> set[tuple[str, str]]:
    """The origins that a page loads from and does not declare, with the option to do so."""
    found = set()
    for match in LOADED.finditer(source):
        option = "frames" if match["tag"].lower() == "iframe" else "resources"
        parts = urlsplit(match["url"])
        origin = f"{parts.scheme or 'https'}://{parts.netloc}"
        allowed = getattr(ui, option)
        if not _is_among(origin, allowed) and not str(settings.STATIC_URL).startswith(origin):
            found.add((origin, option))
    return found


def _is_among(origin: str, allowed: Iterable[str]) -> bool:
    scheme, _, host = origin.partition("://")
    for one in allowed:
        of_scheme, _, of_host = one.partition("://")
        if scheme == of_scheme and (
            host == of_host or (of_host.startswith("*.") and host.endswith(of_host[1:]))
        ):
            return True
    return False
