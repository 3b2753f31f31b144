"""``GET <mount>/health``: whether the database answers, for whoever keeps the site running.

It is there when ``MCP_DJANGO["HEALTH"]`` says so. It asks for no credentials and tells nothing but
yes or no, so anybody may ask as often as he likes: the database is asked at most once a second, by
one thread, and a question that takes too long is answered with no.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from django.db import Error, connections
from django.urls import ResolverMatch, URLPattern
from django.urls.resolvers import RegexPattern

from mcp_django.conf import get_settings
from mcp_django.store.databases import alias
from mcp_django.transports.exchange import Exchange, Reply
from mcp_django.transports.replies import json_reply, refusal

logger = logging.getLogger("mcp_django")

# An answer is good for so long, however many ask.
FRESH_SECONDS = 1.0
# A database that has not answered by then counts as one that does not.
PATIENCE_SECONDS = 2.0

VERBS = ("GET", "HEAD")
WELL, ILL = b'{"status":"ok"}', b'{"status":"unavailable"}'


class SwitchedPattern(URLPattern):
    """A pattern that is there while the setting says so; else the address is the site's own."""

    def resolve(self, path: str) -> ResolverMatch | None:
        """The match, while there is such an endpoint."""
        return super().resolve(path) if get_settings().health else None


def patterns(view: Callable[..., Any]) -> list[URLPattern]:
    """The addresses below a mount, and below one that ends in a slash already or is the root."""
    return [
        SwitchedPattern(RegexPattern(r"^(?:/)health/?$", is_endpoint=True), view, None, "health"),
        SwitchedPattern(RegexPattern(r"^health/?$", is_endpoint=True), view),
    ]


def check(exchange: Exchange) -> Reply | None:
    """The refusal of a request that asks nothing about health, ``None`` for one that does."""
    if not get_settings().health:
        return refusal(404, "There is no such endpoint here.")
    if exchange.verb not in VERBS:
        allow = (("Allow", ", ".join(VERBS)),)
        return refusal(405, "Ask about health with GET.", headers=allow)
    return None


def reply(exchange: Exchange) -> Reply:
    """200 when the database answers, 503 else; waits for it no longer than two seconds."""
    found = json_reply(200, WELL) if probe.is_well() else json_reply(503, ILL)
    return replace(found, body=b"") if exchange.verb == "HEAD" else found


@dataclass(slots=True)
class Question:
    """One ``SELECT 1``, under way or answered."""

    began: float
    answered: threading.Event
    is_well: bool = False
    ended: float = 0.0

    def ask(self) -> None:
        """Ask the database; runs in a thread of its own."""
        connection = connections[alias()]
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT 1{connection.features.bare_select_suffix}")
                self.is_well = cursor.fetchone() is not None
        except Error as exc:
            logger.warning("The database does not answer: %s.", type(exc).__name__)
        finally:
            connection.close()
            self.ended = time.monotonic()
            self.answered.set()

    def wait(self) -> bool:
        """Whether the answer was yes; no, once the patience with it is over."""
        left = self.began + PATIENCE_SECONDS - time.monotonic()
        return self.answered.wait(max(0.0, left)) and self.is_well


class Probe:
    """What this process knows of the database's health: one question at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._question: Question | None = None

    def is_well(self) -> bool:
        """Whether the database answers, as of a second ago at most."""
        return self._current().wait()

    def forget(self) -> None:
        """Ask anew the next time."""
        self._question = None

    def _current(self) -> Question:
        with self._lock:
            last = self._question
            if last is not None and not _is_over(last):
                return last
            question = Question(began=time.monotonic(), answered=threading.Event())
            self._question = question
            # A daemon: the end of the process does not wait for a database that hangs.
            threading.Thread(target=question.ask, name="mcp-health", daemon=True).start()
            return question


def _is_over(question: Question) -> bool:
    """Whether the answer is there and has aged."""
    is_answered = question.answered.is_set()
    return is_answered and time.monotonic() - question.ended >= FRESH_SECONDS


probe = Probe()
