"""App configuration of the authorization server, and the log filter that hides secrets."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from django.db.models.signals import post_delete, post_save
from django.utils.translation import gettext_lazy as _

from mcp_django.schema.secrets import HIDDEN, LOG_RECORD, OAUTH_WORDS, is_secret_name, mask


class OAuthConfig(AppConfig):
    """Install the authorization server beside ``mcp_django`` and ``oauth2_provider``."""

    name = "mcp_django.oauth"
    label = "mcp_oauth"
    verbose_name = _("Model Context Protocol: authorization")
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        """Import the models.

        Raises:
            ImproperlyConfigured: if the admin is installed and the toolkit is not: the admin's
                autodiscovery would fail on the toolkit's models. Without the admin, the system
                check E001 reports the missing toolkit.
        """
        super().import_models()
        if apps.is_installed("django.contrib.admin") and not apps.is_installed("oauth2_provider"):
            raise ImproperlyConfigured(
                "mcp_django.oauth is installed without django-oauth-toolkit: "
                "pip install 'django-mcp-provider[oauth]', and add \"oauth2_provider\" to "
                "INSTALLED_APPS."
            )

    def ready(self) -> None:
        """Register system checks, signals and the cleanup; hide secrets in the toolkit's logs."""
        from mcp_django.oauth import checks  # noqa: F401 - importing it registers them
        from mcp_django.storage import cleanup

        # A filter applies only to its own logger and not to child loggers, so each needs it. When
        # the apps are ready, the toolkit has created all of these loggers. Adding a filter twice
        # has no effect.
        for name in ("oauthlib", *logging.root.manager.loggerDict):
            if name.partition(".")[0] in ("oauthlib", "oauth2_provider"):
                logging.getLogger(name).addFilter(_secrets_filter)
        for signal in (post_save, post_delete):
            signal.connect(_end_machine_tokens, "mcp_oauth.ClientProfile", dispatch_uid=self.label)
        if _expired_rows not in cleanup.extra_cleanups:
            cleanup.extra_cleanups.append(_expired_rows)

    def document_problem(self, client_id: str) -> str:
        """Return why this site rejects a client's metadata document, or an empty string.

        ``mcp doctor`` calls this method, since it cannot import the toolkit.
        """
        from mcp_django.oauth.cimd import find_document_problem

        return find_document_problem(client_id)


def _end_machine_tokens(instance: Any, *, created: bool = False, **kwargs: Any) -> None:
    """Revoke the tokens of a machine client, so that a changed profile applies immediately."""
    # The toolkit's models cannot be imported before the apps are ready.
    from mcp_django.oauth.revoking import revoke_machine_tokens

    if not created:
        revoke_machine_tokens(instance.client_id)


def _expired_rows() -> dict[str, QuerySet[Any]]:
    # The toolkit's models cannot be imported before the apps are ready.
    from mcp_django.oauth.cleanup import expired_rows

    return expired_rows()


# oauthlib logs codes and tokens at level DEBUG. A filter on its loggers replaces the secrets in the
# arguments of a record before any handler gets it; log levels are not changed.

# A placeholder in a message, and the word before a placeholder.
_PLACEHOLDER = re.compile(r"%[srdx]")
_LABEL = re.compile(r"(\w+)\W*$")


class _SecretsLogFilter(logging.Filter):
    """A filter that hides secrets in the arguments; it drops no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the secrets in the record and return ``True``."""
        if isinstance(record.args, Mapping):
            record.args = _hide_secrets(record.args)
        elif record.args:
            before = _PLACEHOLDER.split(str(record.msg))
            pairs = zip_longest(before[: len(record.args)], record.args, fillvalue="")
            record.args = tuple(
                _hide_secrets(argument, after=str(text)) for text, argument in pairs
            )
        return True


_secrets_filter = _SecretsLogFilter()


def _hide_secrets(value: Any, *, after: str = "") -> Any:
    """Return the value to log after the text ``after``, such as "... refresh token %s"."""
    if not isinstance(value, (str, Mapping)):
        return value
    label = _LABEL.search(after)
    if isinstance(value, str) and label and is_secret_name(label[1], OAUTH_WORDS):
        return HIDDEN
    return mask(value, {}, limits=LOG_RECORD)
