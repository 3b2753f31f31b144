"""The pages and endpoints of the authorization server.

Importing any of them without the toolkit among the installed apps says so, before the toolkit's
models complain of something else.
"""

from __future__ import annotations

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

if not apps.is_installed("oauth2_provider"):
    raise ImproperlyConfigured(
        'The authorization server stands on django-oauth-toolkit: add "oauth2_provider" to '
        "INSTALLED_APPS, or take mcp_django.oauth.urls out of the URLs."
    )
if not apps.is_installed("mcp_django.oauth"):
    raise ImproperlyConfigured(
        'mcp_django.oauth.urls needs its app: add "mcp_django.oauth" to INSTALLED_APPS, or take '
        "the include out of the URLs."
    )
