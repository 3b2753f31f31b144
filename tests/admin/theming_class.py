"""What a theme brings."""

from __future__ import annotations

from django.contrib import admin


class ThemedAdmin(admin.ModelAdmin):
    """The class that a theme wants all screens to have."""
