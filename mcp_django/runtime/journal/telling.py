"""Who else hears of a call: receivers of signals, and the logger ``mcp_django.calls``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mcp_django.signals import call_finished, call_started
from mcp_django.store.databases import tables

twin = logging.getLogger("mcp_django.calls")

Fields = Mapping[str, Any]


def hears_of_beginnings() -> bool:
    """Whether somebody wants to know before a component runs."""
    return call_started.has_listeners(tables.Call)


def hears_of_ends() -> bool:
    """Whether somebody wants to know what came of it."""
    return call_finished.has_listeners(tables.Call)


def begun(fields: Fields) -> None:
    """Tell that a component is about to run."""
    if hears_of_beginnings():
        call_started.send_robust(sender=tables.Call, call=tables.Call(**fields))


def ended(fields: Fields, *, pk: int | None) -> None:
    """Tell what came of it."""
    if hears_of_ends():
        call_finished.send_robust(sender=tables.Call, call=tables.Call(pk=pk, **fields))


def later(pk: int | None) -> Callable[[Fields], None] | None:
    """How receivers hear of a line that a thread of ours writes."""
    return partial(ended, pk=pk) if hears_of_ends() else None


def log(fields: Fields) -> None:
    """One record, whose ``mcp_call`` can be written as JSON."""
    if twin.isEnabledFor(logging.INFO):
        said = (fields["kind"], fields["component"], fields["outcome"])
        whole = {**fields, "at": fields["at"].isoformat()}
        twin.info("%s %s: %s", *said, extra={"mcp_call": whole})
