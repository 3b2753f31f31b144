"""What is wrong with a value that a database would stumble over, said before it gets there."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.conf import settings
from django.utils import timezone

MAX_TEXT = 1000
# Databases without a type for it keep microseconds in 64 bits.
MAX_DURATION = dt.timedelta(microseconds=2**63 - 1)

# Nearer to the ends of the calendar a moment has no name in some time zones.
FIRST_DAY = dt.date.min + dt.timedelta(days=2)
LAST_DAY = dt.date.max - dt.timedelta(days=2)


def without_nul(value: str) -> str:
    """Text that a database can hold; PostgreSQL has no NUL, and no encoding has half a pair."""
    if "\0" in value:
        raise ValueError("must not contain NUL characters")
    if not value.isprintable() and any("\ud800" <= one <= "\udfff" for one in value):
        raise ValueError("must not contain lone surrogates")
    return value


def local_datetime(value: dt.datetime) -> dt.datetime:
    """A moment as the site keeps it: with an offset under ``USE_TZ``, without one else.

    One without an offset is meant in the site's current time zone.
    """
    if not FIRST_DAY <= value.date() <= LAST_DAY:
        raise ValueError("must be a moment between the years 1 and 9999")
    if settings.USE_TZ:
        return value if timezone.is_aware(value) else timezone.make_aware(value)
    if timezone.is_aware(value):
        return timezone.make_naive(value, timezone.get_default_timezone())
    return value


def naive_time(value: dt.time) -> dt.time:
    """A time of day, which has no offset in a database."""
    if value.tzinfo is not None:
        raise ValueError("must be a time of day without an offset")
    return value


def bounded_duration(value: dt.timedelta) -> dt.timedelta:
    """A duration that fits."""
    if abs(value) > MAX_DURATION:
        raise ValueError(f"must be at most {MAX_DURATION.days} days")
    return value


def text_of_address(value: Any) -> str:
    """An IP address as Django's fields take it."""
    return str(value)
