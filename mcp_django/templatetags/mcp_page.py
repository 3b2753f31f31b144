"""``{% page_style %}``: the style sheet of the approval, consent and sign-in pages."""

from __future__ import annotations

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from mcp_django.auth.pages import inline_style

register = template.Library()


@register.simple_tag
def page_style(path: str) -> SafeString:
    """Return a link to a static style sheet, or its text if it is not served (``inline_style``)."""
    text = inline_style(path)
    if text:
        return mark_safe(f"<style>{text}</style>")  # noqa: S308 - a static file of the site
    return format_html('<link rel="stylesheet" href="{}">', static(path))
