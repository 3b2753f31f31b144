"""Whoever subscribed to an exposed object hears of a change, whichever process makes it.

A process that never served anything, as a command or a worker of the site's pages, knows nothing of
exposures when it saves an object. So what it saves is remembered until the transaction commits;
then one look at one row, at most once a second, tells whether exposures are as this process knows
them. Those it did not know are told what happened, by the very receivers that hear of it from then
on.

Deletions are heard once a process knows its exposures: a receiver for those of every model would
have Django load each row that it deletes, on the whole site.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import Error, connections
from django.db.models import Model
from django.db.models.signals import post_save

from mcp_django.exceptions import Busy
from mcp_django.execution.threads import after_commit
from mcp_django.overrides.exposure_rules import ModelOptions, closed_model
from mcp_django.overrides.exposures import Scratch, declaration_of, model_of
from mcp_django.overrides.override_values import ExposureSpec
from mcp_django.overrides.state import FRESH_SECONDS, UNKEPT, Mark, freshness, shared
from mcp_django.storage.databases import is_of_test

logger = logging.getLogger("mcp_django")

# So much may wait for one commit; with what is saved then this process looks at once.
MAX_WAITING = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """An object that was saved before this process knew who has to hear of it.

    ``heard_by`` is how many listeners there had been; later ones have not heard of it.
    """

    sender: type[Model]
    details: Mapping[str, Any]
    heard_by: int


class Listener:
    """The receivers of one exposure whose objects can be subscribed to, the ``number``th here.

    Raises:
        ImproperlyConfigured: the exposure cannot work.
    """

    def __init__(self, spec: ExposureSpec, number: int) -> None:
        options = ModelOptions.read(spec.read())
        # Nothing is asked of the server but its name, so this process need not have it.
        scratch = Scratch(spec.server, None)
        made: Any = declaration_of(spec, options)
        self._declaration: Any = made(model_of(spec.target), scratch)
        self._declaration.listen()
        self.number = number

    def end(self) -> None:
        """Stop listening."""
        self._declaration.disconnect()

    def hear(self, saved: Saved) -> None:
        """Hear of what was saved before."""
        for signal, receiver, sender in self._declaration.receivers:
            if signal is post_save and sender is saved.sender:
                receiver(sender=sender, **saved.details)


class Ears:
    """Everything that this process listens to for the sake of exposures; for any thread."""

    def __init__(self) -> None:
        self._listeners: dict[ExposureSpec, Listener | None] = {}
        self.count = 0
        """How many listeners there have been."""
        self._mark: Mark | None = None
        self._looked_at = -math.inf
        self._forgotten = 0
        self._lock = threading.Lock()

    @property
    def is_current(self) -> bool:
        """Whether nobody has to be asked about exposures now."""
        if freshness.is_fresh and self._mark == freshness.mark:
            return True
        is_young = time.monotonic() - self._looked_at < FRESH_SECONDS
        return is_young and self._forgotten == freshness.forgotten

    def look(self) -> None:
        """Listen for what is exposed now.

        Raises:
            Busy: the database cannot say, and never could.
            DatabaseError: it cannot.
            SynchronousOnlyOperation: it would have to be asked on an event loop.
        """
        began, forgotten = time.monotonic(), freshness.forgotten
        mark = freshness.look()
        if mark == UNKEPT or mark != self._mark:
            self.listen_to(_wanted(mark))
        self._mark, self._looked_at, self._forgotten = mark, began, forgotten

    def listen_to(self, wanted: Iterable[ExposureSpec]) -> None:
        """Listen for these exposures and for no others."""
        with self._lock:
            before = self._listeners
            self._listeners = {
                spec: before[spec] if spec in before else self._begun(spec) for spec in wanted
            }
            for spec, listener in before.items():
                if listener is not None and spec not in self._listeners:
                    listener.end()

    def tell(self, saved: Saved) -> None:
        """Tell those of what was saved who listen only since."""
        for listener in [*self._listeners.values()]:
            if listener is not None and listener.number > saved.heard_by:
                listener.hear(saved)

    def _begun(self, spec: ExposureSpec) -> Listener | None:
        try:
            listener = Listener(spec, self.count + 1)
        except ImproperlyConfigured:
            # It is not offered either; whoever builds what is offered has logged why.
            return None
        self.count += 1
        return listener


def _wanted(mark: Mark) -> list[ExposureSpec]:
    every = (one for decisions in shared.at(mark).values() for one in decisions.exposures)
    return [one for one in every if _is_subscribed(one)]


def _is_subscribed(spec: ExposureSpec) -> bool:
    """Whether the objects of an exposure can be subscribed to."""
    if spec.kind != "model" or spec.flaw:
        return False
    options = spec.read()
    return bool(options.get("uri")) and options.get("subscribe") is True


ears = Ears()


def connect() -> None:
    """Hear of every object that is saved in this process."""
    post_save.connect(_saved, dispatch_uid="mcp_django.exposures")


def _saved(sender: Any, **details: Any) -> None:
    if ears.is_current or details.get("raw") or not _may_be_exposed(sender):
        return
    using = details["using"]
    if _is_in_test(using):
        return
    details.pop("signal")
    saved = Saved(sender=sender, details=details, heard_by=ears.count)
    if len(connections[using].run_on_commit) >= MAX_WAITING:
        # What is saved next is heard of directly.
        _attempt(saved)
    else:
        after_commit(lambda: _attempt(saved), using=using)


def _is_in_test(using: str) -> bool:
    """Whether a test case will roll everything back, and perhaps counts what waits for a commit."""
    outermost = next(iter(connections[using].atomic_blocks), None)
    return outermost is not None and is_of_test(outermost)


@lru_cache(maxsize=1000)
def _may_be_exposed(sender: type[Model]) -> bool:
    # A migration saves objects of models that are made up for it.
    return sender._meta.apps is apps and not closed_model(sender)


def _attempt(saved: Saved) -> None:
    """Look, if nobody else did meanwhile, and tell; whoever saved something must not fail by it."""
    try:
        if not ears.is_current:
            ears.look()
        ears.tell(saved)
    except (Busy, Error, SynchronousOnlyOperation) as exc:
        logger.warning("Who subscribed to exposed objects is not told of a change (%s).", exc)
