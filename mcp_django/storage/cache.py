"""What the database confirmed within the last second, such as the session of a request.

A ``RefreshAheadCache`` holds values of one kind. A value may be used for ``CONFIRM_SECONDS`` after
the database was queried for it. While values are used, and some seconds longer, a thread of the
process confirms them, all together, before they are too old, so that in steady state no request
queries the database. Requests that need unknown values at the same time share a query.

A change names tags, such as ``session:7``: ``forget`` drops every value with one of them, in this
process and, through pub/sub, in all others. A value with such a tag that is being read at that time
is not cached.

The process owns the caches and the thread, and ``clear_caches`` empties them; a forked child begins
with empty ones. Only speed depends on the thread: without it, as under a WSGI server without
threads, each request queries the database by itself. In an open transaction of the site nothing is
cached, since the data that it reads may be rolled back. With ``BACKGROUND`` at ``"inline"`` no
thread is used, and with ``CONFIRM_SECONDS`` at 0 each request queries the database.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from asgiref.sync import async_to_sync
from django.db import Error
from django.utils.asyncio import async_unsafe

from mcp_django.conf import get_settings
from mcp_django.process import at_fork, on_settings_change
from mcp_django.storage.databases import (
    IDLE_SECONDS,
    close_kept_connections,
    has_kept_connections,
    has_open_transaction,
    in_batches,
    is_inline,
    is_on_loop,
    keep_connections,
    run_with_fresh_connections,
)
from mcp_django.storage.inbox import has_other_workers, is_registered
from mcp_django.storage.pubsub import get_hub, notify_other_processes, shared_layer
from mcp_django.storage.versions import TAGS
from mcp_django.storage.writer import LoopResults, busy_error, set_outcome
from mcp_django.tenants import thread_context

logger = logging.getLogger("mcp_django")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# The maximum number of values of a kind; those that were confirmed least recently are dropped.
MAX_ENTRIES: Final = 10_000
# The part of ``CONFIRM_SECONDS`` after which used values are confirmed.
ROUND: Final = 0.4
MIN_ROUND: Final = 0.01
# For how many times ``CONFIRM_SECONDS`` a value is confirmed after its last use. That costs less
# than another query for a caller that returns within that time.
KEEP: Final = 5
# For how many times ``CONFIRM_SECONDS`` notifications of changed lists are held back.
LIST_DELAY: Final = 1.2
# The maximum number of values that one statement reads.
CHUNK: Final = 500
# How long the thread gathers questions before it answers them with one query.
GATHER_SECONDS: Final = 0.001
# How long a request waits for the thread before it queries the database by itself.
ASK_SECONDS: Final = 1.0
# How often a value is read that changes during each read.
ATTEMPTS: Final = 3
# The maximum number of questions that wait for the thread.
MAX_WAITING: Final = 10_000


def confirm_seconds() -> float:
    """Return how long a value may be used; 0 if each request queries the database."""
    return wanted_seconds() if thread_context() is None else 0


def wanted_seconds() -> float:
    """Return ``CONFIRM_SECONDS``, which is not used on sites with tenants."""
    seconds = get_settings().confirm_seconds
    if seconds is not None:
        return seconds
    # No thread would confirm anything, and changes by ``update()`` in a test apply immediately.
    return 0 if is_inline() else 1


class Confirmed(NamedTuple, Generic[V]):
    """A value as the database has it."""

    value: V
    tags: frozenset[str]
    """What the value depends on; see ``forget``."""
    seconds: float = math.inf
    """How long it may be used at most, if that is less than ``CONFIRM_SECONDS``."""


@dataclass(slots=True, eq=False)
class _Entry(Generic[V]):
    confirmed: Confirmed[V]
    until: float
    """When it becomes too old, by ``monotonic``."""
    until_time: float
    """The same by ``time.time``; ``monotonic`` may stand still while a machine is suspended."""
    used_at: float
    """When a request last asked for it, by ``monotonic``."""


class RefreshAheadCache(Generic[K, V]):
    """Values of one kind that the database confirmed recently; thread-safe.

    ``read_many`` queries the database for some keys, and returns the values that exist. It must
    read the database to which the rows are written: a replica that lags behind could return
    access that was revoked.
    """

    def __init__(
        self,
        name: str,
        read_many: Callable[[Collection[K]], Mapping[K, Confirmed[V]]],
        *,
        size: int = MAX_ENTRIES,
    ) -> None:
        self.name = name
        self._read_many = read_many
        self._size = size
        self._reset()
        _caches.add(self)

    def _reset(self) -> None:
        # Protects all of the following against concurrent changes; ``get`` does not need it.
        self._lock = threading.Lock()
        # By key, in the order of the confirmations.
        self._entries: dict[K, _Entry[V]] = {}
        self._keys: defaultdict[str, set[K]] = defaultdict(set)
        """The keys of the values that have a tag."""
        self._count = 0
        """How often anything was forgotten."""
        self._forgotten: dict[str, int] = {}
        """The tags that were forgotten during the running queries, with the count at that time."""
        self._asking = 0
        """How many queries are running."""
        self._cleared_at = 0
        """The count when everything was forgotten."""
        self._hits = self._asked = self._confirmed = 0

    def counters(self) -> dict[str, int]:
        """Return the number of values, and counters of their use since the process began.

        ``hits`` counts requests that used a known value, ``asked`` values that requests waited for,
        and ``confirmed`` values that were confirmed in the background. They are approximate: they
        are counted without a lock.
        """
        return {
            "entries": len(self._entries),
            "hits": self._hits,
            "asked": self._asked,
            "confirmed": self._confirmed,
        }

    def __len__(self) -> int:
        return len(self._entries)

    def is_in_use(self) -> bool:
        """Return whether there are values."""
        return bool(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value if it is known, else ``None``; never waits or queries the database."""
        cached = self._entries.get(key)
        if cached is None:
            return None
        now = cached.used_at = monotonic()
        if cached.until <= now or cached.until_time <= time.time():
            return None
        self._hits += 1
        return cached.confirmed.value

    def get_in_thread(self, key: K) -> V | None:
        """Return the value as ``get`` does; ``None`` in an open transaction of the site."""
        return None if has_open_transaction() else self.get(key)

    # An event loop must not wait for the thread.
    @async_unsafe
    def fetch(self, key: K) -> V | None:
        """Return the value in a thread that may use the database; ``None`` if there is none.

        Raises:
            Error: the database could not be queried.
            Busy: too many requests wait for an answer.
        """
        if not confirm_seconds() or has_open_transaction():
            self._asked += 1
            confirmed = self._read_many([key]).get(key)
            return None if confirmed is None else confirmed.value
        value = self.get(key)
        if value is not None:
            return value
        if not is_inline():
            answer: Future[V | None] = Future()
            _thread.ask(self, key, partial(set_outcome, answer))
            try:
                return answer.result(ASK_SECONDS)
            except TimeoutError:
                logger.warning("The thread that reads %s does not respond.", self.name)
        return self.read([key]).get(key)

    async def afetch(self, key: K) -> V | None:
        """Return the value on an event loop; ``None`` if there is none, or no thread answers.

        Raises:
            Error: the database could not be queried.
            Busy: too many requests wait for an answer.
        """
        value = self.get(key)
        if value is not None or is_inline() or not confirm_seconds():
            return value
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[V | None] = loop.create_future()
        _thread.ask(self, key, partial(LoopResults.of(loop).post, answer))
        timer = loop.call_later(ASK_SECONDS, _give_up, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def read(self, keys: Iterable[K]) -> dict[K, V]:
        """Query the database for some keys now, and return the values that exist.

        Raises:
            Error: the database could not be queried.
        """
        key_list = list(keys)
        self._asked += len(key_list)
        return self._read(key_list)

    def _read(self, keys: list[K]) -> dict[K, V]:
        values: dict[K, V] = {}
        for _ in range(ATTEMPTS):
            keys = self._read_once(keys, values)
            if not keys:
                break
        return values

    def _read_once(self, keys: Collection[K], values: dict[K, V]) -> list[K]:
        """Add what is read to ``values``; return the keys of values that changed in the meantime.

        Values that changed are added as well, since they may have been read after the change.
        """
        # Other processes must see this process before it caches anything that they may change.
        may_keep = is_registered()
        with self._lock:
            count = self._count
            self._asking += 1
        # The age of a value begins before the query, not after it.
        asked_at, asked_time = monotonic(), time.time()
        changed = []
        try:
            answers = self._read_many(keys)
            with self._lock:
                for key in keys:
                    before = self._drop(key)
                    confirmed = answers.get(key)
                    if confirmed is None:
                        values.pop(key, None)
                        continue
                    values[key] = confirmed.value
                    forgotten_at = [self._forgotten.get(tag, 0) for tag in confirmed.tags]
                    if max([self._cleared_at, *forgotten_at]) > count:
                        changed.append(key)
                    elif may_keep:
                        seconds = min(confirm_seconds(), confirmed.seconds)
                        # The request that asked for it does not count as a later use.
                        used_at = asked_at - confirm_seconds() if before is None else before.used_at
                        cached = _Entry(
                            confirmed, asked_at + seconds, asked_time + seconds, used_at
                        )
                        self._keep(key, cached)
        finally:
            with self._lock:
                self._asking -= 1
                if not self._asking:
                    self._forgotten.clear()
        return changed

    def _keep(self, key: K, cached: _Entry[V]) -> None:
        self._entries[key] = cached
        for tag in cached.confirmed.tags:
            self._keys[tag].add(key)
        while len(self._entries) > self._size:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: K) -> _Entry[V] | None:
        cached = self._entries.pop(key, None)
        if cached is None:
            return None
        for tag in cached.confirmed.tags:
            keys = self._keys[tag]
            keys.discard(key)
            if not keys:
                del self._keys[tag]
        return cached

    def forget(self, tags: Iterable[str]) -> None:
        """Drop every value with one of the tags, also those that are being read."""
        with self._lock:
            self._count += 1
            for tag in tags:
                if self._asking:
                    self._forgotten[tag] = self._count
                for key in list(self._keys.get(tag, ())):
                    self._drop(key)
            if len(self._forgotten) > self._size:
                # The running queries take too long to remember every tag.
                self._forgotten.clear()
                self._cleared_at = self._count

    def clear(self) -> None:
        """Drop all values, also those that are being read."""
        with self._lock:
            self._entries.clear()
            self._keys.clear()
            self._count += 1
            self._cleared_at = self._count

    def confirm(self) -> int:
        """Query the database for all values that were used recently, and return how many.

        Values that were not used since the last round wait until half of their time is over. Values
        that were not used for ``KEEP`` are dropped when they are too old.

        Raises:
            Error: the database could not be queried.
        """
        used, now, seconds = [], monotonic(), confirm_seconds()
        between = ROUND * seconds
        with self._lock:
            for key, cached in list(self._entries.items()):
                unused, remaining = now - cached.used_at, cached.until - now
                if unused < between or (unused < KEEP * seconds and remaining < seconds / 2):
                    used.append(key)
                elif cached.until < now:
                    self._drop(key)
        for part in in_batches(used, CHUNK):
            self._read(list(part))
        self._confirmed += len(used)
        return len(used)


_caches: WeakSet[RefreshAheadCache[Any, Any]] = WeakSet()


def cache_counters() -> dict[str, dict[str, int]]:
    """Return the counters of all caches of this process by their names; nothing about values."""
    return {cache.name: cache.counters() for cache in sorted(_caches, key=lambda cache: cache.name)}


class Confirmable(Protocol):
    """Other values that the thread confirms while they are used."""

    def is_in_use(self) -> bool:
        """Return whether there are values that are not too old."""

    def confirm(self) -> int:
        """Read the values again if they were used since the last time; return how often."""


_confirmables: list[Confirmable] = []


def keep_confirmed(values: Confirmable) -> None:
    """Let the thread confirm values that a request has just read, while requests use them."""
    if confirm_seconds() and not is_inline():
        if values not in _confirmables:
            _confirmables.append(values)
        _thread.wake()


def _give_up(answer: asyncio.Future[V | None]) -> None:
    if not answer.done():
        logger.warning("The thread that reads sessions and callers does not respond.")
        answer.set_result(None)


def forget(*tags: str) -> None:
    """Drop every value with one of these tags, in every process.

    Call it after the commit. In other processes it takes effect when pub/sub delivers it, at the
    latest after ``CONFIRM_SECONDS``. Never raises.
    """
    if not tags or not confirm_seconds():
        return
    forget_here(*tags)
    notify_other_processes(*(replace(TAGS, uri=tag) for tag in tags))


def forget_here(*tags: str) -> None:
    """Drop every value with one of these tags in this process."""
    for cache in list(_caches):
        cache.forget(tags)


def seconds_until_forgotten() -> float:
    """Return how many seconds after the commit another process may use values forgotten here.

    0 if there is no other process: a process that caches has a heartbeat (``storage.inbox``).
    Queries the database.
    """
    # Also with a channel layer, which processes without an event loop do not listen to.
    seconds = confirm_seconds()
    return seconds if seconds and has_other_workers() else 0


def list_delay() -> float:
    """Return how many seconds after the change of a list clients are notified.

    By then no process uses the old list, so a client that requests the list gets the new one.
    """
    return LIST_DELAY * confirm_seconds()


def clear_caches() -> None:
    """Drop all values of this process, as in a new one."""
    for cache in list(_caches):
        cache.clear()


def receive_forgotten() -> None:
    """Let the running event loop receive the tags that other processes forget; idempotent.

    Only with a channel layer: without one, processes notice changes when they confirm values.
    """
    loop = asyncio.get_running_loop()
    if loop not in _receiving and confirm_seconds():
        _receiving.add(loop)
        if _has_layer():
            get_hub().subscribe([TAGS], lambda topic: forget_here(topic.uri))


_receiving: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def receive_forgotten_from_thread() -> None:
    """Call ``receive_forgotten`` on the event loop that waits for this thread, once per process.

    Under WSGI there is no such loop, and the process notices changes when it confirms values.
    """
    if _has_looked.is_set() or is_on_loop():
        return
    _has_looked.set()
    if confirm_seconds() and _has_layer():
        # If no loop waits, the function runs on a loop of its own, which is closed afterwards.
        loop = async_to_sync(_running_loop)()
        if not loop.is_closed():
            loop.call_soon_threadsafe(receive_forgotten)


def _has_layer() -> bool:
    try:
        return shared_layer() is not None
    except Exception:
        # A check reports it; requests do not need it.
        logger.warning("The channel layer cannot be used.", exc_info=True)
        return False


_has_looked = threading.Event()


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


on_settings_change("MCP_DJANGO", "INSTALLED_APPS")(clear_caches)


class _Question(NamedTuple):
    """A value that a request waits for."""

    cache: RefreshAheadCache[Any, Any]
    key: Any
    deliver: Callable[[Any, BaseException | None], None]
    """Passes the value or the exception to the request."""


class _AskingThread:
    """The thread that queries the database for all caches of the process."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_failing = False

    def ask(
        self,
        cache: RefreshAheadCache[Any, Any],
        key: Any,
        deliver: Callable[[Any, BaseException | None], None],
    ) -> None:
        """Queue a question, which is answered soon together with others.

        Raises:
            Busy: too many questions wait.
        """
        if self._questions.qsize() >= MAX_WAITING:
            raise busy_error()
        self._put(_Question(cache, key, deliver))

    def wake(self) -> None:
        """Wake the thread, so that it checks whether there are values to confirm."""
        self._put(None)

    def _put(self, question: _Question | None) -> None:
        self._questions.put(question)
        if self._thread is None or not self._thread.is_alive():
            self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="mcp-confirm", args=(self._questions,), daemon=True
                )
                self._thread.start()

    def _run(self, questions: queue.SimpleQueue[_Question | None]) -> None:
        keep_connections()
        next_round = 0.0
        while True:
            pause: float | None = None
            is_busy = any(values.is_in_use() for values in self._values())
            if is_busy:
                pause = max(0.0, next_round - monotonic())
            elif has_kept_connections():
                pause = IDLE_SECONDS
            try:
                first = questions.get(timeout=pause)
            except queue.Empty:
                if not is_busy:
                    close_kept_connections()
                first = None
            # Without a minimum, the thread would not pause with ``CONFIRM_SECONDS`` at 0.
            between = max(MIN_ROUND, ROUND * confirm_seconds())
            if not is_busy:
                # Values that are read now are new.
                next_round = monotonic() + between
            if first is not None:
                self._answer(first, questions)
            if monotonic() >= next_round:
                self._confirm()
                next_round = monotonic() + between

    def _answer(self, first: _Question, questions: queue.SimpleQueue[_Question | None]) -> None:
        """Answer all questions that wait; read each value of a cache once."""
        time.sleep(GATHER_SECONDS)
        waiting = [first]
        while len(waiting) < CHUNK:
            try:
                question = questions.get_nowait()
            except queue.Empty:
                break
            if question is not None:
                waiting.append(question)
        by_cache: dict[RefreshAheadCache[Any, Any], list[_Question]] = {}
        for question in waiting:
            by_cache.setdefault(question.cache, []).append(question)
        for cache, cache_questions in by_cache.items():
            values = {question.key: cache.get(question.key) for question in cache_questions}
            unknown = [key for key, value in values.items() if value is None]
            failures = self._read(cache, unknown, values)
            for question in cache_questions:
                question.deliver(values[question.key], failures.get(question.key))

    def _read(
        self, cache: RefreshAheadCache[Any, Any], unknown: list[Any], values: dict[Any, Any]
    ) -> dict[Any, Exception]:
        """Add the values of unknown keys to those that are known; return the failures by key."""
        try:
            if unknown:
                values |= run_with_fresh_connections(partial(cache.read, unknown))
        except Exception as exc:  # noqa: BLE001 - each request gets it
            if len(unknown) == 1 or isinstance(exc, Error):
                return dict.fromkeys(unknown, exc)
            # A single key may cause the error.
            failures: dict[Any, Exception] = {}
            for key in unknown:
                failures |= self._read(cache, [key], values)
            return failures
        return {}

    def _values(self) -> Sequence[Confirmable]:
        # A thread that a test has started does nothing in the next test.
        return () if is_inline() else (*_caches, *_confirmables)

    def _confirm(self) -> None:
        try:
            for values in self._values():
                run_with_fresh_connections(values.confirm)
        except Error as exc:
            # Values that cannot be confirmed become too old, so requests query and get the error.
            if not self._is_failing:
                logger.warning("Sessions and callers cannot be confirmed (%s).", exc)
            self._is_failing = True
        except Exception:
            logger.exception("The values of a cache cannot be confirmed.")
        else:
            self._is_failing = False


_thread = _AskingThread()


@at_fork
def _begin_anew() -> None:
    """Begin with empty caches and no thread in a forked child."""
    for cache in list(_caches):
        cache._reset()
    _thread._reset()
    _has_looked.clear()
