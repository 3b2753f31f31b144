"""The app of the site."""

from django.apps import AppConfig


class OscarSiteConfig(AppConfig):
    """Not named oscar, which is the label of another app."""

    name = "tests.sites.oscar"
    label = "oscar_site"
