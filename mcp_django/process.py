"""What a process owns, and what ends it: a fork, and settings that change in a test.

What is kept between two requests is listed here with its owner. A module that keeps something
registers what clears it with ``at_fork`` and ``on_settings_change``.

Threads and event loops:

- tool, short-task and stream threads: ``execution.threads``. A forked child begins without pools; a
  test that changes their sizes discards them; they are drained when the process stops.
- kept event loops of threads: ``execution.thread_sensitive``. They are closed before a fork, and
  when they are idle.
- one writer thread for each kind of rows: ``storage.writer``. A forked child begins with an empty
  queue and no thread; with ``BACKGROUND`` at ``"inline"`` there is none.
- the thread that confirms cached callers and sessions: ``storage.cache``; and the heartbeat, the
  polling and the cleanup of the pub/sub hub: ``storage.pubsub``, for each event loop.

Caches; those that requests can fill have a maximum size:

- callers and sessions that the database confirmed within ``CONFIRM_SECONDS``: ``storage.cache``,
  filled by ``auth.authentication`` and ``storage.sessions``. Tags of changed rows clear them in
  every process.
- verified tokens of other issuers: ``auth.backends.external``; keys of issuers:
  ``auth.backends.jwt``; addresses of callers: ``auth.credentials``.
- schemas that are built at their first use, for a minute: ``schema.deferred``.
- the users whose requests wait for a task: ``tasks.handlers``.
- catalogs, with the plans and pages of lists that belong to them: ``overrides.state``,
  ``execution.plan``, ``execution.handlers.listing``. Every change in the admin and every
  registration replaces the catalog.
- settings (``conf``), endpoints by path (``asgi``), the tenants' class (``tenants``), providers
  (``oauth.upstream.conf``), audit packages (``execution.audit``), handlers of the site's own views
  (``integrations.site_requests``), which calls need a thread (``execution.invoke``), and why
  callers are not cached (``auth.authentication``): computed at first use, until a setting changes.

Database connections belong to the thread that opened them: ``storage.databases``. Under WSGI and
ASGI, in a transaction and in a test the same owners apply: a test runner sets ``BACKGROUND`` to
``"inline"``, so that no thread writes, and only test helpers send ``setting_changed``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.signals import setting_changed

Function = TypeVar("Function", bound=Callable[[], object])


def at_fork(function: Function) -> Function:
    """Call a function without arguments in every forked child, from now on; usable as a decorator.

    A child has no threads of its parent, and a copied lock may be locked. The functions are called
    in the order of their registration. Where processes cannot fork, this does nothing.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function


def before_fork(function: Function) -> Function:
    """Call a function without arguments before every fork, in the thread that forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=function)
    return function


def on_settings_change(*names: str) -> Callable[[Function], Function]:
    """Decorate a function of a module without arguments: call it when one of the settings changes.

    Without names, any setting. ``override_settings`` and other test helpers send the signal. A
    function that is registered again with the same names, as in a reloaded module, is called once.
    """

    def decorator(function: Function) -> Function:
        def receive(*, setting: str, **kwargs: Any) -> None:
            if not names or setting in names:
                function()

        uid = f"{function.__module__}.{function.__qualname__} {names}"
        setting_changed.connect(receive, weak=False, dispatch_uid=uid)
        return function

    return decorator
