"""The app of the site."""

from django.apps import AppConfig


class HelpdeskSiteConfig(AppConfig):
    """Not named helpdesk, which is the label of another app."""

    name = "tests.sites.helpdesk"
    label = "helpdesk_site"
