"""The settings of the site."""

from tests.sites.common import *  # noqa: F403
from tests.sites.common import DJANGO_APPS

INSTALLED_APPS = [
    "tests.sites.helpdesk",
    "mcp_django",
    "django.contrib.humanize",
    "django.contrib.sites",
    "rest_framework",
    "helpdesk",
    *DJANGO_APPS,
]
SITE_ID = 1
ROOT_URLCONF = "tests.sites.helpdesk.urls"
HELPDESK_TEAMS_MODE_ENABLED = False
HELPDESK_ACTIVATE_API_ENDPOINT = True
HELPDESK_PUBLIC_TICKET_FORM_CLASS = "helpdesk.forms.PublicTicketForm"
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
LOGIN_URL = "/login/"
