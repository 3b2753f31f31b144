"""Detection and masking of secrets: by field name, by field schema, or by the pattern of a value.

Secrets grant access or authorize a payment. They must not pass through a client (MCP 2026-07-28,
"Elicitation", security), so forms must not have fields for them. A value whose name or pattern is
that of a secret is not logged, shown to other users or exposed in the admin. All code that hides
secrets uses this module.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Collection
from contextlib import suppress

from mcp_django.schema.structure import Path, Schema, at

HIDDEN = "[hidden]"

# Words of field names that elicitation forms must not have.
SECRETS = (
    *("password", "passwd", "passphrase", "secret", "apikey", "cvc", "cvv"),
    *("api key", "private key", "card number", "credit card"),
)
# Only as the last word: a "token count" is not a secret.
SECRET_END = "token"
# Words of field names that forms may have, such as a seed or a signature, but whose values are
# shown only to the user who entered them.
HIDDEN_WORDS = frozenset(
    {
        *("assertion", "authorization", "bearer", "cookie", "cookies", "credential"),
        *("credentials", "digest", "hash", "jwt", "nonce", "otp", "passcode", "passwords", "pin"),
        *("pwd", "salt", "secrets", "seed", "signature", "ssn", "tokens", "totp", "verifier"),
    }
)
HIDDEN_PHRASES = (
    *("access key", "access token", "api keys", "auth key", "auth token", "encryption key"),
    *("recovery code", "refresh token", "reset key", "security code", "session data"),
    *("session key", "signing key", "token value", "verification code"),
)
# The site's own tokens, JWTs, credentials after the name of an authentication scheme, and
# credentials in the user info or the query of a URL.
SECRET_VALUE = re.compile(
    r"\bmcp_[\w-]{20,}"
    r"|\beyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|\bbearer\s+\S+"
    r"|\bbasic\s+[\w+/=]{8,}"
    r"|(?<=://)[^/?#\s:@]*:[^/?#\s@]+(?=@)"
    r"|(?<=[?&;])(?P<name>[\w.-]*(?:token|secret|password|passwd|signature|api[_-]?key|code))"
    r"=[^&;\s\"'<>]+",
    re.IGNORECASE,
)

_UNKNOWN: Schema = {"type": "string"}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_secret(root: Schema, path: Path, *, sensitive: Collection[str] = ()) -> bool:
    """Return whether the value at a path is secret: by its schema, its name, or `sensitive`.

    The names of the lists and objects that contain the value count as well.
    """
    *outer, name = [step for step in path if isinstance(step, str)] or [""]
    if name in sensitive or any(one in sensitive or names_secret(one) for one in outer):
        return True
    # A name that is not declared may be a misspelling of one that is.
    members = at(root, path) or [_UNKNOWN]
    return any(hides_secret(name, one) for one in members)


def asks_for_secret(name: str, member: Schema) -> bool:
    """Return whether a field asks for a secret; booleans and choices never do."""
    return _says_secret(member) or (_is_entered(member) and _sounds(name, SECRETS))


def hides_secret(name: str, member: Schema) -> bool:
    """Return whether the value of a field is hidden from other users."""
    return _says_secret(member) or (_is_entered(member) and names_secret(name))


def names_secret(name: str) -> bool:
    """Return whether the name is that of a secret, whatever the type of the value."""
    words = _words(name)
    return (
        _sounds(name, SECRETS)
        or not HIDDEN_WORDS.isdisjoint(words.split())
        or any(f" {one} " in words for one in HIDDEN_PHRASES)
    )


def without_secrets(text: str) -> str:
    """Return a text with everything that looks like a credential masked."""
    return SECRET_VALUE.sub(_hidden, text)


def _hidden(found: re.Match[str]) -> str:
    return f"{name}={HIDDEN}" if (name := found["name"]) else HIDDEN


def _says_secret(member: Schema) -> bool:
    return bool(member.get("writeOnly")) or member.get("format") == "password"


def _is_entered(member: Schema) -> bool:
    return member.get("type") in ("string", "number", "integer") and not (
        member.get("enum") or member.get("oneOf")
    )


def _sounds(name: str, known: Collection[str]) -> bool:
    words = _words(name)
    return words.endswith(f" {SECRET_END} ") or any(f" {one} " in words for one in known)


def _words(name: str) -> str:
    return f" {' '.join(_WORD.findall(name)).lower()} "


# Secrets in the server's log ----------------------------------------------------------------------

LOGGERS = ("mcp_django", "mcp_django.calls", "mcp_django.security")


class _WithoutSecrets(logging.Filter):
    """Masks credentials in the message and the traceback of log records; no record is dropped.

    An exception from a tool may contain the tool's arguments or a URL. If a traceback contains a
    secret, it is logged as text, with the secret masked. The record then has no `exc_info`, because
    handlers that use it, such as those that send mail or reports, would show the secret.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record and return true."""
        # If formatting fails (wrong number of arguments, or a failing `__str__` of the site), the
        # logging handler reports it; the request must not fail.
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


_filter = _WithoutSecrets()


def install() -> None:
    """Add the filter to the loggers of this package (idempotent).

    A filter does not apply to child loggers, so each logger needs it.
    """
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_filter)
