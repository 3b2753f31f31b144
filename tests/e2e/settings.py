"""The demo as a strict site runs it, in the language of the browser."""

from demo_project.settings import *  # noqa: F403
from demo_project.settings import MIDDLEWARE as DEMO

_after = DEMO.index("django.contrib.sessions.middleware.SessionMiddleware") + 1
MIDDLEWARE = [
    "tests.kit.strict.strict",
    *DEMO[:_after],
    "django.middleware.locale.LocaleMiddleware",
    *DEMO[_after:],
]
