"""How often something may happen: fixed windows, counted in Django's default cache.

Accuracy: the windows of one key begin at multiples of their length, so around a boundary twice the
limit may pass within one length. With the local-memory cache each process counts on its own, and a
limit holds per process; with a shared cache it holds for the site. Some caches add in two steps
(the file and database caches), and may count a little less under load. A cache that fails, or that
keeps nothing, limits nothing: a site whose cache is down goes on serving.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time

from django.core.cache import cache

logger = logging.getLogger("mcp_django.security")

# What is wrong with the site is wrong for every request.
COMPLAINT_SECONDS = 60
_complained: dict[str, float] = {}
_lock = threading.Lock()


def take(name: str, key: str, *, limit: int, seconds: int, count: int = 1) -> int:
    """Count an event; 0 when it is within the limit, else the seconds until the next window.

    ``count`` counts so many at once, all of which have to be within the limit.
    """
    entry, left = _window(name, key, seconds)
    try:
        cache.add(entry, 0, timeout=seconds + 1)
        counted = cache.incr(entry, count)
    except ValueError:  # it fell out of the cache in between, or nothing stays in
        return 0
    except Exception as exc:  # noqa: BLE001 - the site's cache, which may be a service that is down
        _complain(name, exc)
        return 0
    return left if counted > limit else 0


def look(name: str, key: str, *, limit: int, seconds: int, count: int = 1) -> int:
    """What ``take`` would say now, without counting anything."""
    entry, left = _window(name, key, seconds)
    try:
        counted = cache.get(entry, 0)
    except Exception as exc:  # noqa: BLE001 - as above
        _complain(name, exc)
        return 0
    return left if counted + count > limit else 0


def give_back(name: str, key: str, *, seconds: int, count: int = 1) -> None:
    """Take back what ``take`` has counted for something that then was not to be."""
    entry, _ = _window(name, key, seconds)
    try:
        cache.decr(entry, count)
    except ValueError:  # its window is over
        return
    except Exception as exc:  # noqa: BLE001 - as above
        _complain(name, exc)


def may_complain(about: str) -> bool:
    """Whether it is time to log something that every request would say: once a minute at most."""
    now = time.monotonic()
    with _lock:
        if about in _complained and now - _complained[about] < COMPLAINT_SECONDS:
            return False
        _complained[about] = now
        return True


def _window(name: str, key: str, seconds: int) -> tuple[str, int]:
    """The entry of the window that is open now, and the seconds that are left of it."""
    now = time.time()
    # Keys of memcached are short and hold no blanks, and an address is nobody's business there.
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]
    entry = f"mcp_django:limit:{name}:{digest}:{int(now // seconds)}"
    return entry, seconds - int(now % seconds)


def _complain(name: str, exc: Exception) -> None:
    if may_complain("cache"):
        logger.error(
            "The limit %r cannot be counted; nothing is limited meanwhile.", name, exc_info=exc
        )
