"""Every Django middleware that changes responses, in the order that Django's docs recommend."""

from tests.transports.settings import *  # noqa: F403
from tests.transports.settings import MIDDLEWARE as ORDINARY

MIDDLEWARE = [
    "django.middleware.cache.UpdateCacheMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    *ORDINARY,
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.cache.FetchFromCacheMiddleware",
]
