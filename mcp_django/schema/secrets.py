"""Detecting and masking secrets: by name, by what a field says of itself, or by how a value looks.

Secrets are what grants access or authorizes a payment. They must not pass through a client (MCP
2026-07-28, "Elicitation", security), so no form may have a field for one; and no value that has
the name or the look of one is written into a log, shown to others, or exposed in the admin. All
code that hides secrets uses this module.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Collection
from contextlib import suppress

from mcp_django.schema.structure import Path, Schema, at

HIDDEN = "[hidden]"

# In a field's name, word by word: what no form may ask for.
SECRETS = (
    *("password", "passwd", "passphrase", "secret", "apikey", "cvc", "cvv"),
    *("api key", "private key", "card number", "credit card"),
)
# At the end of a name: "token count" is something else.
SECRET_END = "token"
# What a form may ask for, as a seed or a signature, and nobody has to see who did not write it.
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
# The site's own tokens, JWTs, what follows the name of a scheme in a header, and what an address
# has before its host or for the value of a secret.
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
    """Tell whether the value at a path is for nobody to see: by its schema, its name, or its owner.

    What is in a list or an object is called as that is, too.
    """
    *outer, name = [step for step in path if isinstance(step, str)] or [""]
    if name in sensitive or any(one in sensitive or names_secret(one) for one in outer):
        return True
    # A name that nobody declared may be a misspelled one that somebody did.
    members = at(root, path) or [_UNKNOWN]
    return any(hides_secret(name, one) for one in members)


def asks_for_secret(name: str, member: Schema) -> bool:
    """Tell whether a field is for a secret; a yes or no and a choice never are."""
    return _says_secret(member) or (_is_entered(member) and _sounds(name, SECRETS))


def hides_secret(name: str, member: Schema) -> bool:
    """Tell whether what is entered into a field is for nobody else to see."""
    return _says_secret(member) or (_is_entered(member) and names_secret(name))


def names_secret(name: str) -> bool:
    """Tell whether something of this name is for nobody to see, whatever it is."""
    words = _words(name)
    return (
        _sounds(name, SECRETS)
        or not HIDDEN_WORDS.isdisjoint(words.split())
        or any(f" {one} " in words for one in HIDDEN_PHRASES)
    )


def without_secrets(text: str) -> str:
    """A text without what looks like a credential, wherever in it that stands."""
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


# The server's log without secrets -----------------------------------------------------------------

LOGGERS = ("mcp_django", "mcp_django.calls", "mcp_django.security")


class _WithoutSecrets(logging.Filter):
    """Hides what looks like a credential in message and traceback, and lets every record pass.

    What a tool raises may contain its arguments, or an address. The text of an exception that
    holds a secret is logged as text, with the secret masked. Handlers that look at the exception
    itself, such as those that mail or send a report, are then not given it: they would show the
    secret.
    """

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


_filter = _WithoutSecrets()


def install() -> None:
    """Watch the loggers of this package; again is the same as once.

    A filter holds for the logger that it is on and not for those below, so each has to have it.
    """
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_filter)
