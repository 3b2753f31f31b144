"""Whether whoever began a task may still read what came of it: who may not call its tool may not.

A tool that is in the code no more has no permission to ask for, and leaves its results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Offered
from mcp_django.runtime.policy import admit, visible
from mcp_django.runtime.reasons import Verdicts

if TYPE_CHECKING:
    from mcp_django.models import Task


def may_read(
    offered: Offered, principal: Principal, row: Task | None, *, verdicts: Verdicts | None = None
) -> bool:
    """Whether the caller may use the tool of a task of his; what is switched off, nobody may.

    A task that there is not (``None``) takes as long as one that he may not read.

    Raises:
        AccessRefused: a credential with more scopes may.
    """
    tool = offered.find_tool(row.tool) if row is not None else None
    may_use = admit(principal, tool, among=offered.tools.values(), verdicts=verdicts)
    if row is None or tool is not None:
        return may_use
    return (offered.available or offered).find_tool(row.tool) is None


def unreadable(offered: Offered, principal: Principal) -> list[str]:
    """The names of tools, former ones too, whose results the caller may not read."""
    return [
        name
        for one in (offered.available or offered).tools.values()
        if (left := offered.tools.get(one.name)) is None or not visible(principal, left)
        for name in (one.name, *one.aliases)
    ]
