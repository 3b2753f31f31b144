"""Detection and masking of secrets: by field name, by field schema, or by the pattern of a value.

Secrets grant access or authorize a payment. They must not pass through a client (MCP 2026-07-28,
"Elicitation", security), so forms must not have fields for them. A value whose name or pattern is
that of a secret is not logged, shown to other users or exposed in the admin. All code that hides
secrets uses this module.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

from mcp_django.protocol.text import clip, escape_invisible, storable
from mcp_django.schema.structure import Path, Schema, alternatives, schemas_below

HIDDEN = "[hidden]"

Words = re.Pattern[str]

# Patterns for names in lower case, with spaces between words: "^" is the start, "$" the end.
_ASKED = (
    *("password", "passwd", "passphrase", "secret", "apikey", "cvc", "cvv"),
    *("api key", "private key", "card number", "credit card"),
    # A "token count" is not a secret.
    "token$",
)
_SHOWN = (
    *("assertion", "authorization", "bearer", "cookies?", "credentials?", "digest", "hash", "jwt"),
    *("nonce", "otp", "pass$", "passcode", "passwords", "pin", "pwd", "salt", "secrets", "seed"),
    *("signature", "ssn", "tokens", "totp", "verifier"),
    *("access key", "access token", "api keys", "auth key", "auth token", "encryption key"),
    *("recovery code", "refresh token", "reset key", "security code", "session data"),
    *("session key", "signing key", "token value", "verification code"),
)
_OAUTH = ("key$", "^code$", "^authorization code$", "^device code$", "^state$")


def _compile_words(*words: str) -> Words:
    return re.compile(rf"\b(?:{'|'.join(words)})\b")


FORM_WORDS = _compile_words(*_ASKED)
"""The words of field names that elicitation forms must not have."""
VALUE_WORDS = _compile_words(*_ASKED, *_SHOWN)
"""Also the words of fields that forms may have, such as a seed or a signature, but whose values are
shown only to the user who entered them."""
OAUTH_WORDS = _compile_words(*_ASKED, *_SHOWN, *_OAUTH)
"""Also the names of secrets in OAuth that are ordinary names elsewhere."""

MAX_CACHED_NAME = 100

_UNKNOWN: Schema = {"type": "string"}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_secret_name(name: str, words: Words = VALUE_WORDS) -> bool:
    """Return whether the name is that of a secret, whatever the type of the value."""
    # Clients choose names, and a cache must not contain megabytes.
    search = _has_word if len(name) <= MAX_CACHED_NAME else _has_word.__wrapped__
    return search(name, words)


@lru_cache(maxsize=1024)
def _has_word(name: str, words: Words) -> bool:
    return words.search(" ".join(_WORD.findall(name)).lower()) is not None


def asks_for_secret(name: str, member: Schema) -> bool:
    """Return whether a field asks for a secret; booleans and choices never do."""
    return is_hidden_field(name, member, FORM_WORDS)


def is_hidden_field(name: str, member: Schema, words: Words = VALUE_WORDS) -> bool:
    """Return whether the value of a field is hidden from other users."""
    if member.get("writeOnly") or member.get("format") == "password":
        return True
    is_choice = member.get("enum") or member.get("oneOf")
    if is_choice or member.get("type") not in ("string", "number", "integer"):
        return False
    return is_secret_name(name, words)


def is_secret(root: Schema, path: Path, *, sensitive: Collection[str] = ()) -> bool:
    """Return whether the value at a path is secret: by its schema, its name, or `sensitive`.

    The names of the lists and objects that contain the value count as well.
    """
    masker = _Masker(root, sensitive, LOG)
    place = masker.root
    for step in path:
        place = masker.find_place(place, step)
    return place.is_secret


# The site's own tokens, JWTs, credentials after the name of an authentication scheme, and
# credentials in the user info or the query of a URL. The last pattern matches a JWT after a
# hyphen; it starts at the start of the word, because otherwise the time would grow with the square
# of the length of the text.
SECRET_VALUE = re.compile(
    r"\bmcp_[\w-]{20,}"
    r"|(?<![\w-])eyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|\bbearer\s+(?!…(?![\w-]))\S+"
    r"|\bbasic\s+[\w+/=]{8,}[\w+/=-]*"
    r"|(?<=://)[^/?#\s:@]*:[^/?#\s@]+(?=@)"
    r"|(?<=[?&;])(?P<name>[\w.-]*(?:token|secret|password|passwd|signature|api[_-]?key|code))"
    r"=[^&;\s\"'<>]+"
    r"|(?<![\w-])(?=[\w-]+\.[\w-]+\.)(?P<before>(?:(?!\bmcp_[\w-]{20})[\w-])*?-)"
    r"eyJ[\w-]+\.[\w-]+\.[\w-]*",
    re.IGNORECASE,
)


def mask_secrets(text: str, hidden: str = HIDDEN) -> str:
    """Return a text with everything that looks like a credential masked."""
    return SECRET_VALUE.sub(
        lambda match: (
            f"{match['name']}={hidden}" if match["name"] else (match["before"] or "") + hidden
        ),
        text,
    )


# Secrets in a value -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskLimits:
    """The limits to which ``mask`` cuts a value; by default, ``mask`` only hides secrets."""

    text: int = sys.maxsize
    """The characters of a text."""
    name: int = sys.maxsize
    """The characters of a member's name."""
    members: int = sys.maxsize
    """The members of an object, and the items of a list."""
    depth: int = sys.maxsize
    """The lists and objects around a value."""
    total: int = sys.maxsize
    """The characters of all texts and names together; other values count as eight."""
    cut: str = ""
    """The suffix of a text that is cut; ``size`` is its original length."""
    more: str = ""
    """The placeholder for the ``more`` elements that are left out, of ``size`` in total."""
    hidden: str | None = HIDDEN
    """The replacement of a secret; with ``None``, secrets are left out, and other texts and names
    are not changed."""
    words: Words = VALUE_WORDS
    """The words of names that mark a secret."""
    clean: Callable[[str], str] = str
    """Applied to a text before it is searched for secrets."""
    escape: Callable[[str], str] = str
    """Applied to the text after the search."""


LOG = MaskLimits(
    text=500,
    name=80,
    members=50,
    depth=8,
    total=10_000,
    cut="… (cut)",
    more="{more} more",
    clean=storable,
)
"""For the call log and telemetry."""
PERSON = MaskLimits(escape=escape_invisible)
"""For a person who approves a call, and so has to see all of it."""
MESSAGE = MaskLimits(
    text=2000,
    members=200,
    # Deeper than any legitimate result.
    depth=80,
    cut="… ({size})",
    more="({size})",
    hidden=None,
    words=_compile_words("^$"),
)
"""For the raw messages of the playground, including the site's answers; nothing is hidden."""
PAGE = replace(MESSAGE, depth=MESSAGE.depth - 1, hidden="•••", words=VALUE_WORDS)
"""For the arguments in these messages, which are one level deeper."""
FORM = MaskLimits(hidden=None)
"""For a form with the values that a user sent; the user has to enter secrets again."""
LOG_RECORD = MaskLimits(words=OAUTH_WORDS)
"""For the log records of the OAuth libraries."""
EVENT = replace(
    LOG_RECORD,
    text=500,
    clean=lambda text: "".join(
        character if character.isprintable() else "\ufffd" for character in text
    ),
)
"""For the security log, whose texts have one line."""

# A secret that is cut in the middle is not recognized, so more is searched than shown.
_SEARCHED = 4
MAX_DIGITS = 15


def mask(
    value: Any, schema: Schema, *, sensitive: Collection[str] = (), limits: MaskLimits = LOG
) -> Any:
    """Return a value as JSON, with its secrets hidden and cut to the limits.

    ``schema`` is the schema of the value; ``sensitive`` are further names of secrets. Names that
    become equal are numbered. A ``Decimal`` keeps its digits: one with a fraction, an exponent or
    more than ``MAX_DIGITS`` digits becomes a text. Objects that are not JSON become texts.
    """
    masker = _Masker(schema, sensitive, limits)
    return masker.mask(value, masker.root)


class _Place(NamedTuple):
    """A place in a value, with the schemas that may apply there."""

    name: str
    depth: int
    schemas: list[Schema]
    is_secret: bool = False
    is_inside_secret: bool = False


class _Masker:
    """Masks one value; ``left`` is the rest of ``limits.total``."""

    __slots__ = ("left", "limits", "places", "root", "schema", "sensitive")

    def __init__(self, schema: Schema, sensitive: Collection[str], limits: MaskLimits) -> None:
        self.schema = schema
        self.sensitive = sensitive
        self.limits = limits
        self.left = limits.total
        self.root = _Place("", 0, list(alternatives(schema, schema)))
        # Keyed by the surrounding place. All items of a list share one place, and so do their
        # members.
        self.places: dict[tuple[int, str | int], _Place] = {}

    def find_place(self, place: _Place, step: str | int) -> _Place:
        """Return the place of a member or an item."""
        key = id(place), step
        if key in self.places:
            return self.places[key]
        words, schemas = self.limits.words, schemas_below(self.schema, place.schemas, step)
        name, is_inside = place.name, place.is_inside_secret
        if isinstance(step, str):
            is_inside = is_inside or name in self.sensitive or is_secret_name(name, words)
            name = step
        is_secret = (
            is_inside
            or name in self.sensitive
            # An undeclared name may be a misspelling of a declared one.
            or any(is_hidden_field(name, schema, words) for schema in schemas or [_UNKNOWN])
        )
        self.places[key] = _Place(name, place.depth + 1, schemas, is_secret, is_inside)
        return self.places[key]

    def mask(self, value: Any, place: _Place) -> Any:
        """Return the masked value at a place."""
        if place.is_secret:
            self.left -= len(HIDDEN)
            return self.limits.hidden
        if self.left <= 0 or place.depth > self.limits.depth:
            return "…"
        if isinstance(value, Mapping):
            return self._mask_members(value, place)
        if isinstance(value, (set, frozenset)):
            value = sorted(value, key=str)
        if isinstance(value, (list, tuple)):
            return self._mask_items(value, place)
        if isinstance(value, Decimal):
            value = _exact_number(value)
        if value is not None and not isinstance(value, (bool, int, float)):
            text, limit = str(value), self.limits.text
            value = self._hide(text[: _SEARCHED * limit])
            if len(value) > limit:
                value = value[:limit] + self.limits.cut.format(size=len(text))
        self.left -= len(value) if isinstance(value, str) else 8
        return value

    def _mask_members(self, value: Mapping[Any, Any], place: _Place) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for number, (name, member) in enumerate(islice(value.items(), self.limits.members), 1):
            inner = self.find_place(place, str(name))
            if self._is_left_out(inner):
                continue
            key = clip(self._hide(str(name)[: self.limits.text]), limit=self.limits.name)
            while key in members:
                key = f"{key} ({number})"
            self.left -= len(key)
            members[key] = self.mask(member, inner)
        if len(value) > self.limits.members:
            members["…"] = self._describe_rest(value, self.find_place(place, "…"))
        return members

    def _mask_items(self, value: Sequence[Any], place: _Place) -> list[Any]:
        fixed = max((len(schema.get("prefixItems", ())) for schema in place.schemas), default=0)
        places = chain(
            (self.find_place(place, n) for n in range(fixed)),
            repeat(self.find_place(place, fixed)),
        )
        items = [
            self.mask(element, inner)
            for element, inner in zip(value[: self.limits.members], places, strict=False)
            if not self._is_left_out(inner)
        ]
        if len(value) > self.limits.members:
            items.append(self._describe_rest(value, next(places), before="… "))
        return items

    def _is_left_out(self, place: _Place) -> bool:
        return place.is_secret and self.limits.hidden is None

    def _describe_rest(self, value: Sized, place: _Place, *, before: str = "") -> str | None:
        if place.is_secret:
            return self.limits.hidden
        size = len(value)
        return before + self.limits.more.format(size=size, more=size - self.limits.members)

    def _hide(self, text: str) -> str:
        text, hidden = self.limits.clean(text), self.limits.hidden
        return self.limits.escape(text if hidden is None else mask_secrets(text, hidden))


def _exact_number(number: Decimal) -> int | str:
    """Return a number in a form that keeps all of its digits in JSON."""
    is_short = number.is_finite() and len(number.as_tuple().digits) <= MAX_DIGITS
    if is_short and number.as_tuple().exponent == 0:
        return int(number)
    return str(number)


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
            masked = mask_secrets(message)
            if masked != message:
                record.msg, record.args = masked, ()
        if record.exc_info:
            traceback_text = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            masked = mask_secrets(traceback_text)
            if masked != traceback_text:
                record.exc_info, record.exc_text = None, masked
        return True


_masking_filter = _SecretMaskingFilter()


def install_log_filter() -> None:
    """Add the filter to the loggers of this package (idempotent).

    A filter does not apply to child loggers, so each logger needs it.
    """
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_masking_filter)
