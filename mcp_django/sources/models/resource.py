"""``ModelResource``: the objects of a model as resources, and prompts about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from mcp_django.core.component import Completion, Component
from mcp_django.sources.models.changes import Changes
from mcp_django.sources.models.declaration import ModelComponents
from mcp_django.sources.models.variables import Variables

M = TypeVar("M", bound=Model)


class ModelResource(ModelComponents[M]):
    """A model as resources: one for each object, by the variables of ``uri``.

    The variables are unique among ``fields``. ``list`` says whether the objects are listed,
    ``title`` and ``last_modified`` name the fields that the list shows, ``blobs`` the files that
    can be read, ``prompts`` have ``{object}`` in their text. With ``subscribe`` a saved object
    notifies its subscribers, after commit; for what sends no signals, such as
    ``QuerySet.update``, call ``mcp.notify_changed(Order, rows)``.
    """

    uri: str = ""
    list: bool = True
    title: str = ""
    last_modified: str = ""
    blobs: Sequence[str] = ()
    max_blob_bytes: int = 1024 * 1024
    prompts: Mapping[str, str] = {}
    subscribe: bool = False

    def components(self) -> Iterator[Component]:
        """The templates and prompts, after what else the class offers."""
        from mcp_django.sources.models import resources

        yield from super().components()
        yield from resources.components(self)

    def completions(self) -> Iterator[Completion]:
        """The keys of visible objects, for templates and prompts."""
        from mcp_django.sources.models import resources

        yield from super().completions()
        yield from resources.completions(self)

    def connect(self) -> None:
        """Listen to what is saved and deleted."""
        super().connect()
        if self.subscribe:
            self._changes.connect()

    def disconnect(self) -> None:
        """Stop listening."""
        super().disconnect()
        self._changes.disconnect()

    def notify(self, changed: QuerySet[Any, Any] | Iterable[M]) -> None:
        """Tell the subscribers of these objects that they changed; ``QuerySet.update`` does not."""
        self._changes.notify(changed)

    @cached_property
    def variables(self) -> Variables:
        """The variables of ``uri``, checked."""
        return Variables(self, self.uri)

    @cached_property
    def _changes(self) -> Changes:
        return Changes(self)
