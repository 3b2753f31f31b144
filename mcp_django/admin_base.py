"""What the pages of this package in the site's admin have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.module_loading import import_string

from mcp_django.conf import get_settings

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    # A theme brings a class of its own, which its templates and widgets come with.
    Base = import_string(get_settings().admin_base_class)


class ReadOnlyAdmin(Base):
    """Rows that are written by the package alone, to be looked at."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody writes them by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nor changes them."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nor takes one away."""
        return False
