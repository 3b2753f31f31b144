"""``{% page_style %}``: a style sheet of the pages on which a user decides something."""

from __future__ import annotations

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from mcp_django.auth.pages import inline_style

register = template.Library()


@register.simple_tag
def page_style(path: str) -> SafeString:
    """A link to a static file; under ``DEBUG`` its text, since most ASGI servers serve none."""
    text = inline_style(path)
    if text:
        return mark_safe(f"<style>{text}</style>")  # noqa: S308 - a static file of the site
    return format_html('<link rel="stylesheet" href="{}">', static(path))
