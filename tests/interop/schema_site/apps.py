"""The application that has the model."""

from django.apps import AppConfig


class SchemaSiteConfig(AppConfig):
    """A label of its own."""

    name = "tests.interop.schema_site"
    label = "schema_site"
