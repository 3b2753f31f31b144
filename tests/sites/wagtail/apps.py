"""The app of the site."""

from django.apps import AppConfig


class WagtailSiteConfig(AppConfig):
    """Not named wagtail, which is the label of another app."""

    name = "tests.sites.wagtail"
    label = "wagtail_site"
