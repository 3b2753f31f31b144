"""The site of these tests: its URLs, its middleware, its templates."""

import pytest
from django.core.cache import cache
from django.utils import timezone, translation

from tests.kit.servers import open_to_all

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "tests.integrations.views.middleware.stamp",
]
FORM = "<h1>{{ view.kwargs.pk }}</h1><form method='post'>{% csrf_token %}{{ form }}</form>"


@pytest.fixture(autouse=True)
def site(settings):
    settings.ROOT_URLCONF = "tests.integrations.views.urls"
    settings.MIDDLEWARE = MIDDLEWARE
    settings.LOGIN_URL = "/accounts/login/"
    settings.TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "loaders": [
                    (
                        "django.template.loaders.locmem.Loader",
                        {"form.html": FORM, "bare.html": "<p>bare</p>"},
                    )
                ],
            },
        }
    ]
    # Django's test client leaves the language and the time zone of its last request behind.
    with translation.override("en"), timezone.override(None):
        yield settings
    cache.clear()


@pytest.fixture
def server():
    return open_to_all()
