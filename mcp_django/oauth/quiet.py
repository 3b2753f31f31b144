"""Codes and tokens kept out of the log: oauthlib writes them there at the level DEBUG.

Its loggers stay as talkative as the site wants them; the secrets in what they are handed are
replaced before any handler sees them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from mcp_django.schema.secrets import HIDDEN

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


class WithoutSecrets(logging.Filter):
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


def _hidden(value: Any, *, after: str = "") -> Any:
    """A value as it may be logged behind a text: "... refresh token %s" names a secret."""
    if isinstance(value, str) and _ANNOUNCES_A_SECRET.search(after):
        return HIDDEN
    if not isinstance(value, Mapping):
        return value
    return {name: HIDDEN if name in SECRETS else one for name, one in value.items()}


_filter = WithoutSecrets()


def install() -> None:
    """Watch every logger of oauthlib; again is the same as once.

    A filter holds for the logger that it is on and not for those below, so each has to have it. By
    the time the apps are ready the toolkit has imported them all.
    """
    for name in ("oauthlib", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("oauthlib", "oauth2_provider"):
            logging.getLogger(name).addFilter(_filter)
