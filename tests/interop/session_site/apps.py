"""The application that the components are found in."""

from django.apps import AppConfig


class SessionSiteConfig(AppConfig):
    """A label of its own."""

    name = "tests.interop.session_site"
    label = "session_site"
