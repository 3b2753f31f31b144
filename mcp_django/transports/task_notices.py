"""``notifications/tasks`` on a listen stream: each change of a task, whole (TKE-11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from mcp_django.runtime.handlers.tasks import readable_now
from mcp_django.runtime.incoming import Incoming
from mcp_django.runtime.tasks import describing
from mcp_django.store import tasks
from mcp_django.store.topics import Topic
from mcp_django.transports.desk import at_desk

METHOD = "notifications/tasks"


class TaskNotices:
    """What one stream tells of the tasks that it was asked to."""

    def __init__(self, task_ids: Sequence[str]) -> None:
        self._by_topic: Mapping[Topic, str] = {tasks.topic_of(one): one for one in task_ids}

    @property
    def topics(self) -> list[Topic]:
        """What to listen for."""
        return [*self._by_topic]

    def covers(self, topic: Topic) -> bool:
        """Whether a change is one of a task."""
        return topic in self._by_topic

    async def at_first(self, incoming: Incoming) -> list[dict[str, Any]]:
        """The tasks that were over, or asked something, before anybody listened."""
        found = [await self.of(topic, incoming) for topic in self._by_topic]
        return [one for one in found if one is not None and one["status"] != tasks.WORKING]

    async def of(self, topic: Topic, incoming: Incoming) -> dict[str, Any] | None:
        """A task as ``tasks/get`` would have it now; ``None`` for one that is not there."""
        return await at_desk(partial(_described, incoming, self._by_topic[topic]))

    async def look_after(self) -> None:
        """Close those whose worker is gone, which rings like any change."""
        if self._by_topic:
            await at_desk(partial(tasks.close_late, [*self._by_topic.values()]))


def _described(incoming: Incoming, task_id: str) -> dict[str, Any] | None:
    row = readable_now(incoming, task_id)
    return None if row is None else describing.detailed(row)
