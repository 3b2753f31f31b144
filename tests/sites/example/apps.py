"""The example site's application."""

from django.apps import AppConfig


class ExampleConfig(AppConfig):
    """Named in full so that its label does not depend on where the tests are run from."""

    name = "tests.sites.example"
    label = "example"
    default_auto_field = "django.db.models.BigAutoField"
