"""Notifications for subscribers of exposed objects, whichever process changes the objects.

A process that has not served MCP requests, such as a command or a worker of the site's pages, has
not loaded the exposed models when it saves an object. It therefore remembers saved objects until
the transaction commits. It then queries one row, at most once a second, to check whether its
exposed models are current. Receivers of models that it did not know yet get the remembered signal,
and are connected from then on.

Deletions are noticed only after a process has loaded the exposed models: a ``post_delete`` receiver
for every model would make Django load each row that it deletes, on the whole site.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import Error, connections
from django.db.models import Model
from django.db.models.signals import post_save

from mcp_django.exceptions import Busy
from mcp_django.execution.threads import run_after_commit
from mcp_django.overrides.exposure_rules import ModelOptions, model_exclusion
from mcp_django.overrides.exposures import StagingServer, build_declaration, model_of
from mcp_django.overrides.override_values import ExposureSpec, read_exposures
from mcp_django.overrides.state import (
    FRESH_SECONDS,
    UNCOMMITTED,
    Version,
    override_cache,
    override_version,
)
from mcp_django.storage.databases import is_test_transaction
from mcp_django.tenants import thread_context

logger = logging.getLogger("mcp_django")

# The most callbacks that may wait for a commit; with more, exposed models are checked immediately.
MAX_WAITING = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSignal:
    """The signal of an object that was saved before the exposed models were known to be current.

    ``seen_sequence`` is the number of the newest listener at that time; later listeners did not
    receive the signal.
    """

    sender: type[Model]
    details: Mapping[str, Any]
    seen_sequence: int


class ExposureReceivers:
    """The connected receivers of one exposed model with subscriptions.

    ``number`` counts the listeners of this process.

    Raises:
        ImproperlyConfigured: the row is invalid.
    """

    def __init__(self, spec: ExposureSpec, number: int) -> None:
        options = ModelOptions.from_json(spec.load_options())
        # Only the name of the server is used, so this process need not have the server.
        staging = StagingServer(spec.server, None)
        declaration_class: Any = build_declaration(spec, options)
        self._declaration: Any = declaration_class(model_of(spec.target), staging)
        self._declaration.connect_signals()
        self.number = number

    def disconnect(self) -> None:
        """Disconnect the receivers."""
        self._declaration.disconnect()

    def receive(self, saved: PendingSignal) -> None:
        """Send a remembered signal to the receivers of its model."""
        for signal, receiver, sender in self._declaration.receivers:
            if signal is post_save and sender is saved.sender:
                receiver(sender=sender, **saved.details)


class ModelSignalRelay:
    """The listeners of all exposed models in this process; thread-safe."""

    def __init__(self) -> None:
        self._listeners: dict[ExposureSpec, ExposureReceivers | None] = {}
        self.count = 0
        """The number of listeners created so far."""
        self._version: Version | None = None
        self._checked_at = -math.inf
        self._change_count = 0
        self._lock = threading.Lock()

    @property
    def is_current(self) -> bool:
        """Whether the listeners are current, so that no query is needed."""
        version = override_version.fresh_version()
        if version is not None and self._version == version:
            return True
        is_young = time.monotonic() - self._checked_at < FRESH_SECONDS
        return is_young and self._change_count == override_version.change_count

    def refresh(self) -> None:
        """Query the exposed models, and connect or disconnect listeners accordingly.

        Raises:
            Busy: the database is unavailable, and no earlier state is known.
            DatabaseError: the database is unavailable.
            SynchronousOnlyOperation: a query is needed on an event loop.
        """
        began, forgotten = time.monotonic(), override_version.change_count
        version = override_version.get_version()
        if version == UNCOMMITTED or version != self._version:
            # The exposed models of all tenants to whose objects clients can subscribe.
            if thread_context() is None:
                overrides = override_cache.overrides_at(version).values()
                specs = [
                    spec for server_overrides in overrides for spec in server_overrides.exposures
                ]
            else:
                # Tenants that expose a model in the same way share its receivers.
                exposed = read_exposures(of_all=True).values()
                distinct = {
                    replace(spec, pk=0): None for server_specs in exposed for spec in server_specs
                }
                specs = list(distinct)
            subscribable_specs = [
                spec
                for spec in specs
                if spec.kind == "model"
                and not spec.error
                and (options := spec.load_options()).get("uri")
                and options.get("subscribe") is True
            ]
            self.connect_receivers(subscribable_specs)
        self._version, self._checked_at, self._change_count = version, began, forgotten

    def connect_receivers(self, specs: Iterable[ExposureSpec]) -> None:
        """Connect listeners for exactly these exposed models."""
        with self._lock:
            before = self._listeners
            listeners: dict[ExposureSpec, ExposureReceivers | None] = {}
            for spec in specs:
                if spec in before:
                    listeners[spec] = before[spec]
                    continue
                try:
                    listeners[spec] = ExposureReceivers(spec, self.count + 1)
                    self.count += 1
                except ImproperlyConfigured:
                    # The row is not in the catalog either; building the catalog logs the reason.
                    listeners[spec] = None
            self._listeners = listeners
            for spec, listener in before.items():
                if listener is not None and spec not in self._listeners:
                    listener.disconnect()

    def replay(self, saved: PendingSignal) -> None:
        """Send a remembered signal to the listeners that were created after it."""
        for listener in [*self._listeners.values()]:
            if listener is not None and listener.number > saved.seen_sequence:
                listener.receive(saved)


signal_relay = ModelSignalRelay()


def connect_signals() -> None:
    """Connect to ``post_save`` of all models in this process."""
    post_save.connect(_on_post_save, dispatch_uid="mcp_django.exposures")


def _on_post_save(sender: Any, **details: Any) -> None:
    if signal_relay.is_current or details.get("raw") or not _may_be_exposed(sender):
        return
    using = details["using"]
    outermost = next(iter(connections[using].atomic_blocks), None)
    if outermost is not None and is_test_transaction(outermost):
        # The test case will roll back the transaction, and may count its callbacks.
        return
    details.pop("signal")
    saved = PendingSignal(sender=sender, details=details, seen_sequence=signal_relay.count)
    if len(connections[using].run_on_commit) >= MAX_WAITING:
        # The listeners are then current, and receive the next signals directly.
        _refresh_and_replay(saved)
    else:
        run_after_commit(lambda: _refresh_and_replay(saved), using=using)


@lru_cache(maxsize=1000)
def _may_be_exposed(sender: type[Model]) -> bool:
    # Migrations save objects of historical models.
    return sender._meta.apps is apps and not model_exclusion(sender)


def _refresh_and_replay(saved: PendingSignal) -> None:
    """Update the listeners if needed and send the signal; an error must not fail the save."""
    try:
        if not signal_relay.is_current:
            signal_relay.refresh()
        signal_relay.replay(saved)
    except (Busy, Error, SynchronousOnlyOperation) as exc:
        logger.warning("Cannot notify subscribers of exposed objects of a change (%s).", exc)
