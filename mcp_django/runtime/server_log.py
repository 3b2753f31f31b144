"""The server's log without secrets: what a tool raises may say what it was sent, or an address.

The text of an exception that has one is logged as text, without it. Then handlers that look at the
exception itself, as those that mail or send a report, are not given it: they would show the secret.
"""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress

from mcp_django.schema.secrecy import without_secrets

LOGGERS = ("mcp_django", "mcp_django.calls", "mcp_django.security")


class WithoutSecrets(logging.Filter):
    """Hides what looks like a credential in message and traceback, and lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true."""
        # Handlers tell of a message that cannot be made, and no request fails for it: too many
        # values, or one of the site that cannot say what it is.
        with suppress(Exception):
            message = record.getMessage()
            shown = without_secrets(message)
            if shown != message:
                record.msg, record.args = shown, ()
        if record.exc_info:
            told = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            shown = without_secrets(told)
            if shown != told:
                record.exc_info, record.exc_text = None, shown
        return True


_filter = WithoutSecrets()


def install() -> None:
    """Watch the loggers of this package; again is the same as once.

    A filter holds for the logger that it is on and not for those below, so each has to have it.
    """
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_filter)
