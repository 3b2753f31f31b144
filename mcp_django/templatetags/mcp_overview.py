"""``{% mcp_overview as overview %}``: what the front page of this app in the admin shows.

Django imports the tags of all apps, so a site without the admin has none here.
"""

from __future__ import annotations

from django import template
from django.apps import apps

register = template.Library()

if apps.is_installed("django.contrib.admin"):
    from mcp_django.admin.overview import Overview, build_overview

    @register.simple_tag(takes_context=True)
    def mcp_overview(context: template.Context) -> Overview:
        """Return what the user of the request may see."""
        return build_overview(context["request"], context.get("app_list") or ())
