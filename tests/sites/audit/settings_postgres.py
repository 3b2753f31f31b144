"""The settings of this site on PostgreSQL, with the package that needs it."""

from tests.kit import settings_postgres
from tests.sites.audit import settings as audited
from tests.sites.audit.settings import *  # noqa: F403

DATABASES = settings_postgres.DATABASES
INSTALLED_APPS = [*audited.INSTALLED_APPS, "pgtrigger", "pghistory"]
MIDDLEWARE = [
    *(
        "reversion.middleware.RevisionMiddleware" if path.endswith("RevisionMiddleware") else path
        for path in audited.MIDDLEWARE
    ),
    "pghistory.middleware.HistoryMiddleware",
]
# The tables of a test are created without migrations.
PGTRIGGER_INSTALL_ON_MIGRATE = True
PGHISTORY_INSTALL_CONTEXT_FUNC_ON_MIGRATE = True
