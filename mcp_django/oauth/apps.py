"""The app configuration of the authorization server, and the filter that hides secrets in logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from mcp_django.schema.secrets import HIDDEN


class OAuthConfig(AppConfig):
    """Installs the authorization server beside ``mcp_django`` and ``oauth2_provider``."""

    name = "mcp_django.oauth"
    label = "mcp_oauth"
    verbose_name = _("Model Context Protocol: authorization")
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        """Import the models.

        Raises:
            ImproperlyConfigured: the toolkit is missing and the admin is there, whose autodiscovery
                would complain of the toolkit's models. Without the admin, a check says it (E001).
        """
        super().import_models()
        if apps.is_installed("django.contrib.admin") and not apps.is_installed("oauth2_provider"):
            raise ImproperlyConfigured(
                "mcp_django.oauth is installed without django-oauth-toolkit: "
                "pip install 'django-mcp-provider[oauth]', and add \"oauth2_provider\" to "
                "INSTALLED_APPS."
            )

    def ready(self) -> None:
        """Register the checks and what is to be pruned; keep tokens out of the log."""
        from mcp_django.oauth import checks
        from mcp_django.storage import cleanup

        checks.register_all()
        _keep_secrets_out()
        if _due not in cleanup.extra:
            cleanup.extra.append(_due)

    def document_problem(self, client_id: str) -> str:
        """Why this site cannot take the metadata document of a client; empty if it can.

        ``mcp doctor`` asks, which knows nothing of the toolkit.
        """
        from mcp_django.oauth.cimd import find_problem

        return find_problem(client_id)


def _due() -> dict[str, QuerySet[Any]]:
    # The toolkit's models cannot be imported before the apps are ready.
    from mcp_django.oauth.cleanup import due

    return due()


# Log redaction ------------------------------------------------------------------------------------

# oauthlib logs codes and tokens at the level DEBUG. Its loggers keep the level that the site gave
# them; the secrets in the arguments of a record are replaced before any handler sees them.

SECRETS = frozenset(
    {
        "access_token",
        "assertion",
        "client_secret",
        "code",
        "code_verifier",
        "device_code",
        "id_token",
        "password",
        "refresh_token",
    }
)
# Where a message has room for an argument, and what announces one that is a secret.
_PLACE = re.compile(r"%[srdx]")
_ANNOUNCES_A_SECRET = re.compile(r"\b(token|code|secret|assertion|password)\W*$", re.IGNORECASE)


class _WithoutSecrets(logging.Filter):
    """Hides the values of ``SECRETS`` in the arguments of a record, and lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true."""
        if isinstance(record.args, Mapping):
            record.args = _hidden(record.args)
        elif record.args:
            before = _PLACE.split(str(record.msg))
            pairs = zip_longest(before[: len(record.args)], record.args, fillvalue="")
            record.args = tuple(_hidden(one, after=str(text)) for text, one in pairs)
        return True


_filter = _WithoutSecrets()


def _keep_secrets_out() -> None:
    """Watch every logger of oauthlib; again is the same as once.

    A filter holds for the logger that it is on and not for those below, so each has to have it. By
    the time the apps are ready the toolkit has imported them all.
    """
    for name in ("oauthlib", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("oauthlib", "oauth2_provider"):
            logging.getLogger(name).addFilter(_filter)


def _hidden(value: Any, *, after: str = "") -> Any:
    """A value as it may be logged behind a text: "... refresh token %s" names a secret."""
    if isinstance(value, str) and _ANNOUNCES_A_SECRET.search(after):
        return HIDDEN
    if not isinstance(value, Mapping):
        return value
    return {name: HIDDEN if name in SECRETS else one for name, one in value.items()}
