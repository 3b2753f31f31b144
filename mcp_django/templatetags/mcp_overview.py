"""``{% mcp_overview as overview %}``: what the front page of this app in the admin shows."""

from __future__ import annotations

from django import template

from mcp_django.admin.overview import Overview, build_overview

register = template.Library()


@register.simple_tag(takes_context=True)
def mcp_overview(context: template.Context) -> Overview:
    """Return what the user of the request may see."""
    return build_overview(context["request"], context.get("app_list") or ())
