"""Change notifications: saving or deleting an object notifies the subscribers of its resources.

Django signals report when an object is saved or deleted, and when its many-to-many relations
change. ``QuerySet.update``, the bulk methods and other programs send no signals; code that uses
them calls ``notify_changed``. An object whose URI changed is published under its new URI. All
changes of a transaction are published together, after it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from django.apps import apps
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import ManyToManyField, ManyToOneRel, Model, QuerySet
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete

from mcp_django.execution.threads import run_after_commit
from mcp_django.integrations.models.exposed_fields import ExposedFields
from mcp_django.integrations.models.uris import URIVariables, related_names
from mcp_django.storage.databases import in_batches, is_test_transaction
from mcp_django.storage.pubsub import publish
from mcp_django.storage.versions import TopicKey, list_topic, resource_topic
from mcp_django.tenants import as_tenant, current_tenant, knows_tenant, run_as_tenant

if TYPE_CHECKING:
    from django.db.models.signals import ModelSignal


# Databases limit the number of parameters in one statement.
CHUNK = 500

FindTopics: TypeAlias = Callable[[Sequence[Any]], Iterable[TopicKey]]
"""Returns the topics of the objects with these values; queries the database."""


class PendingNotification:
    """Topics to publish, and values of objects whose topics are looked up when publishing."""

    def __init__(self) -> None:
        self.topics: dict[TopicKey, None] = {}
        self.lookups: dict[FindTopics, dict[Any, None]] = {}
        self.is_published = False

    def __call__(self) -> None:
        """Publish the topics."""
        self.is_published = True
        topics, lookups = self.topics, self.lookups
        # ``_last`` refers to this object until the connection has another one; free its contents.
        self.topics, self.lookups = {}, {}
        for find, values in lookups.items():
            for chunk in in_batches(list(values), CHUNK):
                topics.update(dict.fromkeys(find(chunk)))
        for batch in in_batches(list(topics), CHUNK):
            publish(*batch)


# The last notification on each connection, with its entry in Django's ``run_on_commit``.
_last: WeakKeyDictionary[BaseDatabaseWrapper, tuple[Any, PendingNotification]] = WeakKeyDictionary()


def publish_after_commit(
    using: str,
    topics: Iterable[TopicKey] = (),
    *,
    find: FindTopics | None = None,
    values: Iterable[Any] = (),
) -> None:
    """Publish topics, and those that ``find`` returns for ``values``, after the commit.

    Consecutive calls in one transaction are merged into one notification: saving a thousand
    objects in a loop adds a few queries, not a thousand.
    """
    topics, values = list(topics), list(values)
    if not topics and not values:
        return
    notification = _pending(using)
    is_new = notification is None
    notification = notification or PendingNotification()
    notification.topics.update(dict.fromkeys(topics))
    if find is not None:
        notification.lookups.setdefault(find, {}).update(dict.fromkeys(values))
    if is_new:
        run_after_commit(notification, using=using)
        connection = connections[using]
        if connection.in_atomic_block and connection.run_on_commit:
            _last[connection] = connection.run_on_commit[-1], notification


def _pending(using: str) -> PendingNotification | None:
    """Return the last notification if it is pending and belongs to the current savepoint."""
    connection = connections[using]
    commit_hook, notification = _last.get(connection, (None, None))
    if not connection.in_atomic_block or not connection.run_on_commit or notification is None:
        return None
    if connection.run_on_commit[-1] is not commit_hook or notification.is_published:
        return None
    # If a savepoint is rolled back, its notification is discarded, so it must not contain topics
    # from outside of the savepoint. A test may begin to capture callbacks in the middle of its
    # atomic block, so notifications that belong to this block are not reused.
    is_same = commit_hook[0] == set(connection.savepoint_ids)
    return (
        notification if is_same and not is_test_transaction(connection.atomic_blocks[-1]) else None
    )


class PublishedModel(Protocol):
    """A declaration with a ``uri``, whose subscribers are notified of changes."""

    model: Any
    server: Any
    list: bool
    blobs: Sequence[str]

    @property
    def exposed(self) -> ExposedFields:
        """The validated allow-list."""

    @property
    def variables(self) -> URIVariables:
        """The validated variables of ``uri``."""


class ModelSignalReceivers:
    """The signal receivers of one declaration, for its model and the related objects it shows."""

    def __init__(self, declaration: PublishedModel) -> None:
        self._declaration = declaration
        self._server: Any = declaration.server
        self._model = declaration.model._meta.concrete_model
        names = {path.names[0] for path in declaration.exposed.paths.values()}
        columns = declaration.model._meta.concrete_fields
        attnames = {column.attname for column in columns if column.name in names}
        # The names in ``update_fields`` that refer to exposed fields.
        self._names = frozenset(names | attnames)
        # Signals hold their receivers weakly.
        self._receivers: list[tuple[ModelSignal, Callable[..., None], type[Model]]] = []

    def connect(self) -> None:
        """Connect the signal receivers."""
        self._receivers = list(self._wanted())
        for signal, receiver, sender in self._receivers:
            signal.connect(receiver, sender=sender)

    @property
    def receivers(self) -> tuple[tuple[ModelSignal, Callable[..., None], type[Model]], ...]:
        """The connected receivers, as tuples of signal, receiver and sender."""
        return tuple(self._receivers)

    def disconnect(self) -> None:
        """Disconnect the signal receivers."""
        for signal, receiver, sender in self._receivers:
            signal.disconnect(receiver, sender=sender)
        self._receivers = []

    def _wanted(self) -> Iterator[tuple[ModelSignal, Callable[..., None], type[Model]]]:
        for sender in _model_and_subclasses(self._model):
            yield post_save, self._on_save, sender
            # Before the deletion: related objects with values of the URI may be deleted, too.
            yield pre_delete, self._on_delete, sender
        for relation in self._declaration.exposed.tree.relations.values():
            field = relation.field
            is_forward = isinstance(field, ManyToManyField)
            through: Any = None
            if field.many_to_many:
                through = field.remote_field.through if is_forward else field.through
            if hasattr(through, "_meta"):
                yield m2m_changed, partial(self._on_m2m_change, field), through
            # The foreign key by which a related object that is shown refers to the model.
            foreign_key: Any = None
            if isinstance(field, ManyToOneRel):
                foreign_key = field.field
            elif through is not None and not through._meta.auto_created:
                # Rows of a through model that Django creates send no ``post_save``.
                foreign_key = through._meta.get_field(
                    field.m2m_field_name() if is_forward else field.field.m2m_reverse_field_name()
                )
            if foreign_key is not None:
                receiver = partial(self._on_related_change, foreign_key)
                for sender in _model_and_subclasses(foreign_key.model):
                    yield post_save, receiver, sender
                    yield post_delete, receiver, sender

    def _on_save(
        self, *, instance: Model, created: bool, using: str, update_fields: Any, **kwargs: Any
    ) -> None:
        if update_fields is not None and self._names.isdisjoint(update_fields):
            # None of the saved fields is exposed.
            return
        values = instance.__dict__
        paths = self._declaration.variables.paths.values()
        if any(hasattr(values.get(path.names[0]), "resolve_expression") for path in paths):
            # The database computes a URI value, which is not loaded yet.
            self._publish_for("pk", [instance.pk], using)
        publish_after_commit(using, [*self._topics(instance), *(self._lists if created else ())])

    def _on_delete(self, *, instance: Model, using: str, **kwargs: Any) -> None:
        publish_after_commit(using, [*self._topics(instance), *self._lists])

    def _on_related_change(self, field: Any, *, instance: Model, using: str, **kwargs: Any) -> None:
        """Handle a saved or deleted object that is shown as part of the object it refers to."""
        value = getattr(instance, field.attname)
        if value is not None:
            self._publish_for(field.target_field.attname, [value], using)

    def _on_m2m_change(
        self,
        field: Any,
        *,
        instance: Model,
        action: str,
        model: type[Model],
        pk_set: set[Any] | None,
        using: str,
        **kwargs: Any,
    ) -> None:
        """Handle a change of a many-to-many relation, from either side."""
        if isinstance(instance, self._model) and action.startswith("post_"):
            publish_after_commit(using, self._topics(instance))
        if not issubclass(model, self._model):
            return
        if action == "pre_clear":
            rows = self._model._base_manager.using(using).filter(**{field.name: instance})
            self._publish_for("pk", rows.values_list("pk", flat=True), using)
        elif action.startswith("post_") and pk_set:
            self._publish_for("pk", pk_set, using)

    def _publish_for(self, column: str, values: Iterable[Any], using: str) -> None:
        if knows_tenant():
            finder = TopicFinder(self, column, using, current_tenant())
            publish_after_commit(using, find=finder, values=values)

    def notify(self, changed: QuerySet[Any] | Iterable[Model]) -> None:
        """Notify subscribers of these objects, and of the resource list, after the commit."""
        if isinstance(changed, QuerySet):
            objects: Iterable[Model] = self._loaded(changed)
            using = changed.db
        else:
            objects = list(changed)
            using = (
                next((instance._state.db for instance in objects if instance._state.db), None)
                or "default"
            )
        topics = [topic for instance in objects for topic in self._topics(instance)]
        publish_after_commit(using, [*topics, *self._lists])

    @property
    def _lists(self) -> list[TopicKey]:
        if not self._declaration.list or not knows_tenant():
            return []
        return [list_topic(self._server.name, "resources")]

    def _topics(self, obj: Model) -> list[TopicKey]:
        """Return the topics of an object: those of its resource and of its files."""
        variables = self._declaration.variables
        uri = variables.uri(variables.texts(obj))
        if uri is None or not knows_tenant():
            return []
        uris = [uri, *(f"{uri}/{name}" for name in self._declaration.blobs)]
        return [resource_topic(self._server.name, resource_uri) for resource_uri in uris]

    def _loaded(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        variables = self._declaration.variables
        rows = rows.select_related(None).only(*variables.expressions)
        relations = related_names(variables.paths.values())
        # Without arguments, ``select_related()`` would follow every relation.
        return rows.select_related(*relations) if relations else rows

    def find_topics(self, column: str, using: str, values: Sequence[Any]) -> list[TopicKey]:
        """Return the topics of the objects with these values in a column."""
        rows = self._model._base_manager.using(using).filter(**{f"{column}__in": values})
        return [topic for row in self._loaded(rows) for topic in self._topics(row)]


@dataclass(frozen=True, slots=True)
class TopicFinder:
    """Finds the topics of objects by a column; equal finders are called once for all values."""

    changes: ModelSignalReceivers
    column: str
    using: str
    tenant: str
    """The tenant of the thread when an object changed; the thread may leave it later."""

    def __call__(self, values: Sequence[Any]) -> list[TopicKey]:
        """Return the topics of the objects with these values."""
        with as_tenant(self.tenant):
            return run_as_tenant(lambda: self.changes.find_topics(self.column, self.using, values))


def _model_and_subclasses(model: type[Model]) -> list[type[Model]]:
    """Return the model, its proxies and its subclasses: each is a signal sender of its own."""
    return [subclass for subclass in apps.get_models() if issubclass(subclass, model)]
