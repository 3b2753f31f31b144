"""Argument schemas that are built when they are first used.

A form or a serializer of the site may run any code when it is created: it may query tables that do
not exist before `migrate`, or read a request that does not exist before a call. So its schema is
built when it is first listed or checked, and for each call. If that fails, the component is left
out of lists, calls report that it is not available, and the system check, `mcp inspect` and the
admin show the reason.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import connections, transaction

from mcp_django.exceptions import ToolError
from mcp_django.process import at_fork
from mcp_django.schema.arguments import ArgumentSource, invalid_argument
from mcp_django.schema.structure import Schema
from mcp_django.tenants import current_tenant, thread_context

logger = logging.getLogger("mcp_django")

T = TypeVar("T")

MAX_AGE = 60.0
"""Seconds after which a schema is built again, because its fields may be rows of the site."""
RETRY_AFTER = 5.0
"""Seconds after which a schema that could not be built is tried again."""
MAX_TENANTS = 1000
"""The number of tenants whose schemas of one component are cached."""
MAX_LOGGED = 100
"""The number of different problems of one component that are remembered as logged."""

_NOTHING: Schema = {"type": "object", "properties": {}, "additionalProperties": False}


class _Built(Generic[T]):
    """The value that was built last, or the reason why it could not be built."""

    __slots__ = ("exception", "expires", "lock", "problem", "value", "version")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: T | None = None
        self.problem = ""
        self.exception: Exception | None = None
        self.expires = 0.0
        self.version = 0


class Deferred(Generic[T]):
    """A value that is built when it is first used, and again after `MAX_AGE` seconds.

    It belongs to one component. Threads share the value, and only one thread at a time builds it;
    a forked child process keeps it. Each tenant has its own value, which may name its rows.
    """

    def __init__(
        self, build: Callable[[], T], *, what: str, logged: set[str] | None = None
    ) -> None:
        self._build = build
        self.what = what
        # Each problem is logged once, even if it occurs for several callers.
        self.logged: set[str] = set() if logged is None else logged
        self._built: _Built[T] = _Built()
        self._built_for: dict[str, _Built[T]] = {}
        _all_deferred.add(self)

    def renew_lock(self) -> None:
        """Replace the locks, which threads of the parent process may have held."""
        for built in (self._built, *self._built_for.values()):
            built.lock = threading.Lock()

    def _known(self) -> _Built[T]:
        """Return what was built last for the current tenant."""
        if thread_context() is None:
            return self._built
        tenant = current_tenant()
        if tenant not in self._built_for and len(self._built_for) >= MAX_TENANTS:
            self._built_for.clear()
        return self._built_for.setdefault(tenant, _Built())

    @property
    def state(self) -> object:
        """The version of the value: equal as long as the value is current and unchanged."""
        built = self._known()
        return built.version if time.monotonic() < built.expires else object()

    @property
    def problem(self) -> str:
        """The reason why the value cannot be built, or `""`; builds the value if necessary."""
        return self._refreshed().problem

    @property
    def exception(self) -> Exception | None:
        """The exception that the build raised, or `None`; builds the value if necessary."""
        return self._refreshed().exception

    def get(self) -> T:
        """Return the value.

        Raises:
            ToolError: the value cannot be built; the reason is logged.
        """
        built = self._refreshed()
        if built.problem or built.value is None:
            raise self._unavailable()
        return built.value

    def build(self) -> T:
        """Build a new value and return it without caching it.

        Raises:
            ToolError: the value cannot be built; the reason is logged.
        """
        value, exception = self._try()
        if value is None:
            raise self._unavailable() from exception
        return value

    def _unavailable(self) -> ToolError:
        return ToolError(
            f"{self.what} is not available, because of an error of this site. It was logged."
        )

    def _try(self) -> tuple[T | None, Exception | None]:
        """Return the value, or the exception that was raised; each problem is logged once."""
        try:
            with _savepoints():
                return self._build(), None
        except SynchronousOnlyOperation:
            raise
        except Exception as exc:
            problem = _text_of(exc)
            if problem not in self.logged:
                # For an error in the declaration, the message is enough.
                traceback = not isinstance(exc, ImproperlyConfigured)
                words = "%s cannot be described: %s"
                logger.error(words, self.what, problem, exc_info=traceback)  # noqa: TRY400
            if len(self.logged) >= MAX_LOGGED:
                self.logged.clear()
            self.logged.add(problem)
            return None, exc

    def _refreshed(self) -> _Built[T]:
        built = self._known()
        if time.monotonic() < built.expires:
            return built
        with built.lock:
            if time.monotonic() < built.expires:
                return built
            try:
                value, exception = self._try()
            except SynchronousOnlyOperation:
                # An event loop may not query the database; a thread builds the value.
                return built
            problem = "" if exception is None else _text_of(exception)
            if problem != built.problem or _schema_of(value) != _schema_of(built.value):
                built.version += 1
            built.value, built.problem, built.exception = value, problem, exception
            built.expires = time.monotonic() + (RETRY_AFTER if problem else MAX_AGE)
        return built


_all_deferred: WeakSet[Deferred[Any]] = WeakSet()


@at_fork
def _renew_locks() -> None:
    for deferred in _all_deferred:
        deferred.renew_lock()


def _text_of(exc: Exception) -> str:
    is_own = isinstance(exc, ImproperlyConfigured)
    return str(exc) if is_own else f"{type(exc).__name__}: {exc}"


def _schema_of(value: Any) -> Any:
    return getattr(value, "json_schema", None)


def _savepoints() -> ExitStack:
    """Return a context in which a failed statement leaves open transactions usable."""
    stack = ExitStack()
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            stack.enter_context(transaction.atomic(using=connection.alias))
    return stack


class DeferredArguments:
    """Arguments whose schema is built when it is first used."""

    def __init__(self, source: Deferred[Any]) -> None:
        self.source = source

    @property
    def json_schema(self) -> Schema:
        """The schema to publish; one without arguments if it cannot be built."""
        try:
            return self._built.json_schema
        except ToolError:
            return _NOTHING

    @property
    def problem(self) -> str:
        """The reason why the schema cannot be built, or `""`."""
        return self.source.problem

    @property
    def exception(self) -> Exception | None:
        """The exception that was raised when the schema was built, or `None`."""
        return self.source.exception

    def schema_state(self) -> object:
        """Return the version of the schema; an equal result means an equal schema."""
        return self.source.state

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return keyword arguments for the function, by a schema that is built for this call.

        Raises:
            InvalidArguments: the arguments are not valid, or their schema cannot be built.
        """
        try:
            source: ArgumentSource = self.source.build()
        except ToolError as exc:
            raise invalid_argument("", str(exc)) from exc
        return source.parse(raw)

    @property
    def _built(self) -> ArgumentSource:
        built: ArgumentSource = self.source.get()
        return built


class CallerArguments(DeferredArguments):
    """Arguments that the site describes differently for its callers.

    Without a caller, the schema is that of a superuser, for the site owner. ``build_for`` builds
    the arguments of a principal. They are not cached, because they may name data that only this
    caller may see.
    """

    def __init__(self, source: Deferred[Any], build_for: Callable[[Any], Any]) -> None:
        super().__init__(source)
        self._build_for = build_for

    def for_caller(self, principal: Any) -> DeferredArguments:
        """Return the arguments of a caller."""
        build = partial(self._build_for, principal)
        return DeferredArguments(Deferred(build, what=self.source.what, logged=self.source.logged))


_LIBRARIES = ("django.", "rest_framework.", "mcp_django.")


def runs_own_code(cls: type, *methods: str) -> bool:
    """Return whether the site's own code overrides one of the methods, in a class or a base class.

    This package, Django and REST framework are not the site's own code; their forms and serializers
    run no query when they are created.
    """
    for base in inspect.getmro(cls):
        if base is object or base.__module__.startswith(_LIBRARIES):
            continue
        if any(name in vars(base) for name in methods):
            return True
    return False
