"""What a component page says of a view: where it is served, and what hosts let it do.

In words alone: nothing of the page itself runs or is shown within the admin.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from mcp_django.core.component import Component
from mcp_django.core.resource import UIResource
from mcp_django.core.tool import UI, Tool


def view_lines(component: Component) -> list[tuple[str, str]]:
    """Labels with texts; none for a component that has no view and is none."""
    if isinstance(component, UIResource):
        return [(_("view of the tool"), component.tool), *_of_page(component.ui)]
    if isinstance(component, Tool) and component.ui is not None:
        return [*_of_tool(component.ui)]
    return []


def _of_tool(ui: UI) -> Iterator[tuple[str, str]]:
    if ui.uri:
        yield _("view"), ui.uri
    if ui.visibility:
        yield _("may be called by"), ", ".join(ui.visibility)
    if ui.template:
        yield from _of_page(ui)


def _of_page(ui: UI) -> Iterator[tuple[str, str]]:
    yield _("template"), ui.template
    named = {
        _("may connect to"): ui.connect,
        _("may load from"): ui.resources,
        _("may show frames of"): ui.frames,
        _("base addresses"): ui.base_uris,
        _("may use"): ui.allow,
    }
    for label, values in named.items():
        if values:
            yield label, ", ".join(values)
    if ui.domain:
        yield _("origin of its own"), ui.domain
