"""Making a decision known: to this process at once, to the others and to clients by the bell."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from django.db import router, transaction

from mcp_django.managed.freshness import freshness
from mcp_django.storage.databases import tables
from mcp_django.storage.pubsub import announce
from mcp_django.storage.versions import MANAGED, Topic, touch

LISTS = {
    "tool": "tools",
    "resource": "resources",
    "resource template": "resources",
    "prompt": "prompts",
}


def decided(changed: Iterable[tuple[str, str]]) -> None:
    """Say that something was decided of these lists, once the transaction commits.

    Each is the name of a server and a list: ``tools``, ``resources`` or ``prompts``. Whoever has
    changed rows that are read in ``managed.reading`` calls this, with no lists if clients see no
    difference in them. ``changed`` is looked at when the transaction commits.
    """
    # Counted in the same transaction: no process may miss that something was switched off.
    touch([MANAGED])
    transaction.on_commit(partial(_tell, changed), using=router.db_for_write(tables.Server))


def _tell(changed: Iterable[tuple[str, str]]) -> None:
    freshness.forget()
    announce(*(Topic(server, kind) for server, kind in dict.fromkeys(changed)))
