"""The call log, seen from the runtime: what becomes of every use of a component is one line.

``dispatch`` opens the ``Entry`` of a request, its handler says what was found, ``calls`` begins and
ends it. Whatever mount a request came by, it goes through these; a request that is turned away
before is told of by ``door``.
"""

from __future__ import annotations

from mcp_django.runtime.journal.entry import KINDS, Entry
from mcp_django.runtime.journal.keeping import akept, kept

__all__ = ["KINDS", "Entry", "akept", "kept"]
