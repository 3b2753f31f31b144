"""Sets the caller in the audit packages of a site, while a component's function runs.

These packages get the user from their middleware, through the request of the thread. But their
middleware sees the HTTP request before the caller is authenticated, it has ended when a stream
begins, and stdio, commands and tasks do not run it. ``audit_context`` sets the caller in each
installed package, in the thread that runs the function, and afterwards restores the earlier values.

This module uses only documented names of a package, or at least names without a leading underscore,
and imports a package only if it is installed. The setting ``AUDIT_CONTEXT`` does the same for any
other package. If a package fails, the call fails too: an audited site wants no changes without an
author.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import Context
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection, models
from django.http import HttpRequest
from django.utils.module_loading import import_string

from mcp_django.conf import get_settings
from mcp_django.execution.threads import transaction_aliases
from mcp_django.process import on_settings_change

if TYPE_CHECKING:
    from mcp_django.execution.call import Call

logger = logging.getLogger("mcp_django")


class AuditFailed(Exception):
    """The caller could not be set in an audit package, or the package could not record the call."""


@cache
def has_audit_packages() -> bool:
    """Return whether the site uses an audit package, or sets ``AUDIT_CONTEXT``."""
    return bool(_installed_packages())


@contextmanager
def audit_context(call: Call) -> Iterator[None]:
    """Record what this thread does in the block as changes by the caller.

    A nested call enters it again, also with another caller.

    Raises:
        AuditFailed: a package failed.
    """
    with ExitStack() as stack:
        for package in _installed_packages():
            stack.enter_context(_log_failure(package, partial(ADAPTERS[package], call)))
        _nesting.depth += 1
        try:
            yield
        finally:
            _nesting.depth -= 1


class _Nesting(threading.local):
    """How many calls run inside one another in this thread."""

    depth = 0


_nesting = _Nesting()


@contextmanager
def _log_failure(package: str, enter: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Raise ``AuditFailed`` for an exception that the package raised, and not the block."""
    raised: BaseException | None = None
    try:
        with enter():
            try:
                yield
            except BaseException as exc:
                raised = exc
                raise
    except Exception as exc:
        if exc is raised:
            raise
        logger.exception("The audit package %r failed, so the call fails too.", package)
        raise AuditFailed(f"The audit package {package!r} failed: {exc}") from exc


@cache
def _installed_packages() -> tuple[str, ...]:
    """Return the packages that the site uses.

    They are in the order of ``ADAPTERS``: ``reversion`` is entered last, so its revision is stored
    first, inside of the others.
    """
    names = {config.name for config in apps.get_app_configs()}
    # crum has no models, so it need not be an app: models or a middleware of the site import it.
    names.update({"crum"}.intersection(sys.modules))
    names.update(path.partition(".")[0] for path in settings.MIDDLEWARE)
    if get_settings().audit_context:
        names.add(SITE_CONTEXT)
    return tuple(name for name in ADAPTERS if name in names)


@cache
def _find_middleware(base: type) -> type[Any] | None:
    """Return the class of the site's middleware that is ``base`` or a subclass, if there is one."""
    used = map(import_string, settings.MIDDLEWARE)
    return next(
        (
            middleware
            for middleware in used
            if isinstance(middleware, type) and issubclass(middleware, base)
        ),
        None,
    )


@on_settings_change("INSTALLED_APPS", "MIDDLEWARE", "MCP_DJANGO")
def _forget_packages() -> None:
    for cached in (has_audit_packages, _installed_packages, _find_middleware):
        cached.cache_clear()


def _user_row(call: Call) -> Any:
    """Return the user as the value of a foreign key: ``None`` for an anonymous caller."""
    principal = call.principal
    if not principal.is_authenticated:
        return None
    user = principal.user
    # The user of an external token may have no row. A lazy user passes ``isinstance`` too.
    return user if isinstance(user, models.Model) else None


@contextmanager
def _set_simple_history(call: Call) -> Iterator[None]:
    """Let ``HistoricalRecords`` find the caller, and a site's ``get_user`` the request."""
    from simple_history.models import HistoricalRecords

    context = HistoricalRecords.context
    before = getattr(context, "request", None)
    request = call.http_request()
    if request is None:
        # Without HTTP, a request that has only its user.
        request = HttpRequest()
        request.user = call.principal.user
    context.request = request
    try:
        yield
    finally:
        if before is not None:
            context.request = before
        elif hasattr(context, "request"):
            # Otherwise the middleware of a view that ran for the call has already deleted it.
            del context.request


@contextmanager
def _set_auditlog(call: Call) -> Iterator[None]:
    """Write entries with the caller, and with the request data that the site's middleware adds."""
    from auditlog import context
    from auditlog.cid import correlation_id, set_cid
    from auditlog.middleware import AuditlogMiddleware

    user, request = _user_row(call), call.http_request()
    if hasattr(context, "set_extra_data"):
        middleware = (_find_middleware(AuditlogMiddleware) or AuditlogMiddleware)(lambda _: None)
        details = {} if request is None else middleware.get_extra_data(request)
        entered = context.set_extra_data(context_data={**details, "actor": user})
    else:
        # Before version 3.4.
        address = None if request is None else request.META.get("REMOTE_ADDR")
        entered = context.set_actor(user, address)
    # The package leaves its values set, and the receiver of an outer block would ignore them.
    values = context.auditlog_value.set({})
    ids = correlation_id.set(None)
    try:
        set_cid(request)
        with entered:
            yield
    finally:
        correlation_id.reset(ids)
        context.auditlog_value.reset(values)


@contextmanager
def _set_crum(call: Call) -> Iterator[None]:
    """Let ``get_current_user`` and ``get_current_request`` return those of the call.

    Without HTTP an anonymous caller is ``None``, as in a command.
    """
    import crum

    request_before, user_before = crum.get_current_request(), crum.get_current_user()
    request, principal = call.http_request(), call.principal
    has_user = request is not None or principal.is_authenticated
    # First, since crum also sets the user of the current request, which may be the middleware's.
    crum.set_current_request(None)
    crum.set_current_request(request)
    crum.set_current_user(principal.user if has_user else None)
    try:
        yield
    finally:
        # Clears the user as well.
        crum.set_current_request(None)
        crum.set_current_request(request_before)
        if crum.get_current_user() is not user_before:
            crum.set_current_user(user_before)


@contextmanager
def _set_pghistory(call: Call) -> Iterator[None]:
    """Attach the caller and the path to events, under the names that the middleware uses."""
    if connection.vendor != "postgresql":
        # The triggers exist only on PostgreSQL.
        yield
        return
    import pghistory

    user, request = _user_row(call), call.http_request()
    key = get_user_model()._meta.pk.get_db_prep_value(call.principal.user_pk, connection)
    metadata = {"user": key if user is not None else None}
    if request is not None:
        metadata["url"] = request.path
    with pghistory.context() as current:
        # If a context is already open, the package returns that one instead of a nested one.
        before = dict(current.metadata)
        current.metadata.update(metadata)
        try:
            yield
        finally:
            current.metadata.clear()
            current.metadata.update(before)


@contextmanager
def _set_reversion(call: Call) -> Iterator[None]:
    """Make the caller the user of the revision; open a revision if the site's middleware has ended.

    A read-only call opens none, since a long one would keep a transaction open for nothing. What a
    function wrote before it failed is in the revision unless it was rolled back.
    """
    import reversion
    from reversion.middleware import RevisionMiddleware

    user = _user_row(call)
    if reversion.is_active():
        before = reversion.get_user()
        reversion.set_user(user)
        try:
            yield
        finally:
            # Not after the outermost call: the revision of the request is stored later, and its
            # user must be the caller.
            if _nesting.depth:
                reversion.set_user(before)
        return
    middleware = _find_middleware(RevisionMiddleware)
    if middleware is None or call.component.read_only:
        yield
        return
    failure: Exception | None = None
    with reversion.create_revision(
        manage_manually=middleware.manage_manually,
        using=middleware.using,
        atomic=middleware.atomic,
    ):
        reversion.set_user(user)
        try:
            yield
        except Exception as exc:
            if transaction_aliases(call.component):
                raise
            failure = exc
    if failure is not None:
        raise failure


def keep_revision(context: Context) -> None:
    """Keep what was added to the open revision of ``reversion`` in a context that has ended.

    A nested block writes what it collected into a copy of the outer block's list, and that copy
    would be lost with a copied context.
    """
    if "reversion" not in _installed_packages():
        return
    for variable in context:
        if variable.name == "reversion-stack":
            variable.set(context[variable])


SITE_CONTEXT = 'MCP_DJANGO["AUDIT_CONTEXT"]'
ADAPTERS: dict[str, Callable[[Call], AbstractContextManager[None]]] = {
    SITE_CONTEXT: lambda call: import_string(get_settings().audit_context)(
        call.principal.user, call.http_request()
    ),
    "simple_history": _set_simple_history,
    "auditlog": _set_auditlog,
    "crum": _set_crum,
    "pghistory": _set_pghistory,
    "reversion": _set_reversion,
}
