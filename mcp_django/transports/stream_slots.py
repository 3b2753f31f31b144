"""The open streams of each caller, and the URIs that they hold: counted in this process.

A stream takes one slot, whose size is what its subscriptions cost in memory. Both are counted for
the caller, as sessions and rates are: for the credential and for its user, or for the address of
an anonymous caller and for all anonymous callers together.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from django.http import HttpRequest

from mcp_django.auth.limits import ANONYMOUS, anonymous_network
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.exceptions import TooManyStreams
from mcp_django.storage.sessions import MAX_SUBSCRIBED_CHARACTERS, MAX_SUBSCRIPTIONS
from mcp_django.tenants import by_tenant

# A URI counts as its length and this many characters more, which is what a process holds for a
# topic besides its name: its entries in the pub/sub hub and in the stream.
TOPIC_CHARACTERS: Final = 1024
# What each stream of a caller may hold on average, if the caller has the maximum number of streams.
# With fewer streams, each may hold more.
CHARACTERS_PER_STREAM: Final = 32 * 1024
# What one stream may hold, so that every caller may have such a stream.
LARGEST_STREAM: Final = MAX_SUBSCRIBED_CHARACTERS + MAX_SUBSCRIPTIONS * TOPIC_CHARACTERS


class StreamSlot:
    """One of the open streams of a caller, counted under each of the caller's keys.

    A stream calls ``release`` when it ends. For a stream that never started, the finalizer of
    this object does. Its methods may be called from any thread.
    """

    def __init__(self, limits: Mapping[str, _Limit], held: _Held) -> None:
        self._limits = limits
        self._held = held
        # A finalizer runs only once: when it is called or when the object is collected.
        self.release = weakref.finalize(self, _release, tuple(limits), held)

    def hold(self, uris: Collection[str]) -> None:
        """Count these URIs instead of the previous ones.

        Raises:
            TooManyStreams: the streams of the caller would hold too many characters; the previous
                ones are still counted.
        """
        size = sum(map(_size_of, uris))
        with _lock:
            _check_size(self._limits, size - self._held.size)
            self._count(size)

    def hold_what_fits(self, uris: Sequence[str]) -> list[str]:
        """Count the URIs that fit, instead of the previous ones, and return them."""
        with _lock:
            room = self._held.size + min(
                limit.characters - _usage_of(key).characters for key, limit in self._limits.items()
            )
            fitting, size = [], 0
            for uri in uris:
                if size + _size_of(uri) <= room:
                    fitting.append(uri)
                    size += _size_of(uri)
            self._count(size)
        return fitting

    def _count(self, size: int) -> None:
        # A slot that was released is no longer counted.
        if self.release.alive:
            for key in self._limits:
                _usage[key].characters += size - self._held.size
            self._held.size = size


class _Limit(NamedTuple):
    streams: int
    characters: int


@dataclass(slots=True)
class _Usage:
    """What the open streams of one key use."""

    streams: int = 0
    characters: int = 0


@dataclass(slots=True)
class _Held:
    """What one stream holds, in characters."""

    size: int


# The usage of the streams that are open in this process; a key is removed with its last stream. A
# forked process inherits counts that are never released.
_usage: dict[str, _Usage] = {}
# Reentrant: the garbage collector may release a slot while the same thread has the lock.
_lock = threading.RLock()


def acquire_stream_slot(
    principal: Principal,
    request: Callable[[], HttpRequest | None],
    *,
    uris: Collection[str] = (),
) -> StreamSlot:
    """Count one more open stream of a caller in this process, which holds these URIs.

    Raises:
        TooManyStreams: the caller has as many open streams as ``STREAMS_PER_PRINCIPAL`` or
            ``STREAMS_PER_USER`` allows, its streams would hold too many characters, or all callers
            without credentials together have reached one of these limits.
    """
    network = anonymous_network(principal, request)
    settings = get_settings()
    most = settings.streams_per_principal
    if network is None:
        # Without a client id, a principal has the same key as its user.
        streams = {principal.user_key: settings.streams_per_user or 2 * most, principal.key: most}
    else:
        streams = {ANONYMOUS: settings.anonymous_factor * most}
        if network:
            streams[f"{ANONYMOUS} at {network}"] = most
    limits: dict[str, _Limit] = {
        by_tenant(key): _Limit(count, max(LARGEST_STREAM, count * CHARACTERS_PER_STREAM))
        for key, count in streams.items()
    }
    held = _Held(sum(map(_size_of, uris)))
    with _lock:
        for key, limit in limits.items():
            if _usage_of(key).streams >= limit.streams:
                raise _too_many(
                    key,
                    f"the limit of {limit.streams} open streams",
                    way_out="close one first",
                )
        _check_size(limits, held.size)
        for key in limits:
            usage = _usage.setdefault(key, _Usage())
            usage.streams += 1
            usage.characters += held.size
    return StreamSlot(limits, held)


def _size_of(uri: str) -> int:
    return len(uri) + TOPIC_CHARACTERS


def _usage_of(key: str) -> _Usage:
    return _usage.get(key) or _Usage()


def _check_size(limits: Mapping[str, _Limit], size: int) -> None:
    """Check that the streams of a caller may hold this many more characters.

    Raises:
        TooManyStreams: they may not.
    """
    for key, limit in limits.items():
        if size > 0 and _usage_of(key).characters + size > limit.characters:
            raise _too_many(
                key,
                f"the limit of {limit.characters} characters for the URIs that all open streams "
                f"subscribe to, where each URI counts {TOPIC_CHARACTERS} more than it has",
                way_out="close a stream, or subscribe to fewer resources",
            )


def _too_many(key: str, limit: str, *, way_out: str) -> TooManyStreams:
    return TooManyStreams(
        f"You have reached {limit}; {way_out}."
        if key != by_tenant(ANONYMOUS)
        else f"Clients without credentials have reached {limit}; try again later.",
        data={"retryAfter": 1},
    )


def _release(keys: Iterable[str], held: _Held) -> None:
    with _lock:
        for key in keys:
            usage = _usage[key]
            usage.streams -= 1
            usage.characters -= held.size
            if usage.streams <= 0:
                del _usage[key]
