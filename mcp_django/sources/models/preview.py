"""The dry run of a write: everything happens, and then it has not.

Forms, hooks, ``save`` and signals run as they would, inside transactions that are rolled back, so
callbacks of ``on_commit`` never run. What a transaction cannot take back (a mail, a file, a job
that a signal hands to a queue at once) happens: such work belongs in ``on_commit``, and the
documentation says so. Another database that is written to meanwhile would keep what it was given,
so that is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from mcp_django.exceptions import ToolError

WRITE = re.compile(
    r"\s*(INSERT|UPDATE|DELETE|REPLACE|MERGE|CREATE|ALTER|DROP|TRUNCATE)\b", re.IGNORECASE
)

NOT_SHOWN = "not_shown"


@contextmanager
def taken_back(alias: str) -> Iterator[None]:
    """Undo at the end what was written to a database, and let nothing be written to others."""
    ours = _reversible(alias)
    with ExitStack() as stack:
        for other in connections:
            if other not in ours:
                stack.enter_context(connections[other].execute_wrapper(_refuse_writes))
        for one in ours:
            stack.enter_context(_rolled_back(one))
        yield


@contextmanager
def _rolled_back(alias: str) -> Iterator[None]:
    with transaction.atomic(using=alias):
        yield
        transaction.set_rollback(True, using=alias)


def _reversible(alias: str) -> list[str]:
    """The model's own database, the default one and those that are in a transaction anyway.

    A transaction on each of them would connect to databases that nobody asks.
    """
    found = [one.alias for one in connections.all(initialized_only=True) if one.in_atomic_block]
    default = connections[DEFAULT_DB_ALIAS].settings_dict["ENGINE"]
    if default != "django.db.backends.dummy":
        # Notices to subscribers wait for its commit where the site named no other database.
        found.append(DEFAULT_DB_ALIAS)
    return list(dict.fromkeys([alias, *found]))


def _refuse_writes(
    execute: Callable[..., Any],
    sql: str,
    params: Any,
    many: bool,  # noqa: FBT001 - Django's order
    context: Mapping[str, Any],
) -> Any:
    if WRITE.match(sql):
        raise ToolError(
            "There is no preview of this: saving also writes to the database "
            f"{context['connection'].alias!r}, which could not be taken back. "
            "Nothing was changed; call again without preview once you are sure."
        )
    return execute(sql, params, many, context)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What changes, field by field, between an object as it was and as it would be shown."""
    names = dict.fromkeys([*before, *after])
    return {
        name: {"from": before.get(name), "to": after.get(name)}
        for name in names
        if before.get(name) != after.get(name)
    }


def not_shown(declaration: Any, written: Iterable[str]) -> list[str]:
    """Which of these can be written and are not among what is shown.

    All of them are named, changed or not: whether one is different would tell its value.
    """
    columns = declaration.model._meta.concrete_fields
    shown = {*declaration.exposed.schema["properties"]}
    shown |= {field.name for field in columns if field.attname in shown}
    return [name for name in written if name not in shown]
