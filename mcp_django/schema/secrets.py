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

from mcp_django.schema.structure import Path, Schema, schemas_at

HIDDEN = "[hidden]"

# Words of field names that elicitation forms must not have.
SECRET_WORDS = (
    *("password", "passwd", "passphrase", "secret", "apikey", "cvc", "cvv"),
    *("api key", "private key", "card number", "credit card"),
)
# Only as the last word: a "token count" is not a secret.
SECRET_LAST_WORD = "token"
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
    if name in sensitive or any(one in sensitive or is_secret_name(one) for one in outer):
        return True
    # A name that is not declared may be a misspelling of one that is.
    members = schemas_at(root, path) or [_UNKNOWN]
    return any(is_hidden_field(name, one) for one in members)


def asks_for_secret(name: str, member: Schema) -> bool:
    """Return whether a field asks for a secret; booleans and choices never do."""
    return _is_declared_secret(member) or (
        _is_free_input(member) and _has_secret_word(name, SECRET_WORDS)
    )


def is_hidden_field(name: str, member: Schema) -> bool:
    """Return whether the value of a field is hidden from other users."""
    return _is_declared_secret(member) or (_is_free_input(member) and is_secret_name(name))


def is_secret_name(name: str) -> bool:
    """Return whether the name is that of a secret, whatever the type of the value."""
    words = _words(name)
    return (
        _has_secret_word(name, SECRET_WORDS)
        or not HIDDEN_WORDS.isdisjoint(words.split())
        or any(f" {one} " in words for one in HIDDEN_PHRASES)
    )


def mask_secrets(text: str) -> str:
    """Return a text with everything that looks like a credential masked."""
    return SECRET_VALUE.sub(_mask_match, text)


def _mask_match(found: re.Match[str]) -> str:
    return f"{name}={HIDDEN}" if (name := found["name"]) else HIDDEN


def _is_declared_secret(member: Schema) -> bool:
    return bool(member.get("writeOnly")) or member.get("format") == "password"


def _is_free_input(member: Schema) -> bool:
    return member.get("type") in ("string", "number", "integer") and not (
        member.get("enum") or member.get("oneOf")
    )


def _has_secret_word(name: str, known: Collection[str]) -> bool:
    words = _words(name)
    return words.endswith(f" {SECRET_LAST_WORD} ") or any(f" {one} " in words for one in known)


def _words(name: str) -> str:
    return f" {' '.join(_WORD.findall(name)).lower()} "


# Secrets in the server's log ----------------------------------------------------------------------

LOGGERS = ("mcp_django", "mcp_django.calls", "mcp_django.security")


class _SecretMaskingFilter(logging.Filter):
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
            shown = mask_secrets(message)
            if shown != message:
                record.msg, record.args = shown, ()
        if record.exc_info:
            told = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            shown = mask_secrets(told)
            if shown != told:
                record.exc_info, record.exc_text = None, shown
        return True


_masking_filter = _SecretMaskingFilter()


def install_log_filter() -> None:
    """Add the filter to the loggers of this package (idempotent).

    A filter does not apply to child loggers, so each logger needs it.
    """
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_masking_filter)
