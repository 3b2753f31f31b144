"""The settings of the site."""

from tests.sites.common import *  # noqa: F403
from tests.sites.common import DJANGO_APPS

INSTALLED_APPS = [
    "tests.sites.wagtail",
    "mcp_django",
    "wagtail.contrib.forms",
    "wagtail.contrib.redirects",
    "wagtail.embeds",
    "wagtail.sites",
    "wagtail.users",
    "wagtail.snippets",
    "wagtail.documents",
    "wagtail.images",
    "wagtail.search",
    "wagtail.admin",
    "wagtail",
    "modelcluster",
    "taggit",
    "treebeard",
    "mptt",
    *DJANGO_APPS,
]
ROOT_URLCONF = "tests.sites.wagtail.urls"
WAGTAIL_SITE_NAME = "Bakery"
WAGTAILADMIN_BASE_URL = "http://localhost"
