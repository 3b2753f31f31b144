"""What a theme brings."""

from django.contrib import admin
from django.template import engines

# As django-unfold does while it is imported: this loads the template tags of every app.
engines.all()


class ThemedAdmin(admin.ModelAdmin):
    """The class that a theme wants all screens to have."""
