"""The settings of all tests, with audit packages and their middleware."""

from tests import settings as site
from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.sites.audit.urls"
INSTALLED_APPS = [
    *site.INSTALLED_APPS,
    "auditlog",
    "reversion",
    "simple_history",
    "easyaudit",
    "tests.sites.audit",
]
MIDDLEWARE = [
    *site.MIDDLEWARE,
    "auditlog.middleware.AuditlogMiddleware",
    "crum.CurrentRequestUserMiddleware",
    # SQLite may refuse a write in the transaction that the package's own opens around a request,
    # once another thread has written in the meantime.
    "tests.sites.audit.middleware.ViewRevisionMiddleware",
    "simple_history.middleware.HistoryRequestMiddleware",
    "easyaudit.middleware.easyaudit.EasyAuditMiddleware",
    "tests.sites.audit.middleware.LateUserMiddleware",
]

# It would log errors about rows of mcp_django, which it cannot serialize.
DJANGO_EASY_AUDIT_REGISTERED_CLASSES = ["audit.Note"]
DJANGO_EASY_AUDIT_WATCH_AUTH_EVENTS = False
DJANGO_EASY_AUDIT_WATCH_REQUEST_EVENTS = False
