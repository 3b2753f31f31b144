"""Tags of this app's own pages.

``{% page_style %}`` is the style sheet of the approval, consent and sign-in pages, and
``{% mcp_overview as overview %}`` is what the front page of the app in the admin shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString, mark_safe

from mcp_django.auth.pages import inline_style

if TYPE_CHECKING:
    from mcp_django.admin.overview import Overview

register = template.Library()


@register.simple_tag
def page_style(path: str) -> SafeString:
    """Return a link to a static style sheet, or its text if it is not served (``inline_style``)."""
    text = inline_style(path)
    if text:
        return mark_safe(f"<style>{text}</style>")  # noqa: S308 - a static file of the site
    return format_html('<link rel="stylesheet" href="{}">', static(path))


@register.simple_tag(takes_context=True)
def mcp_overview(context: template.Context) -> Overview:
    """Return the overview of the front page, as far as the user of the request may see it."""
    # Not imported with the tags: a theme of the admin may load the tags while it is being imported.
    build: Callable[..., Overview] = import_string("mcp_django.admin.overview.build_overview")
    return build(context["request"], context.get("app_list") or ())
