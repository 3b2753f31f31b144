"""Whether rows of exposures are offered, and why not: one look at all rows of a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext as _

from mcp_django.admin.servers import server_of
from mcp_django.overrides.exposures import build
from mcp_django.overrides.override_values import read_exposures, spec_of


def states_of(rows: Iterable[Any]) -> dict[Any, str]:
    """A sentence on each row by its key; one query for any number of rows."""
    known = list(rows)
    enabled = read_exposures() if any(row.is_enabled for row in known) else {}
    names = {row.server for row in known if row.is_enabled}
    built = {name: build(server_of(name), name, enabled.get(name, ())) for name in names}
    return {row.pk: _state(row, built) for row in known}


def _state(row: Any, built: Any) -> str:
    if server_of(row.server) is None:
        return _("Not offered: there is no server “%(name)s” in code.") % {"name": row.server}
    if not row.is_enabled:
        return _("Switched off")
    found = built[row.server].wrong_with(spec_of(row))
    reasons = " ".join(one.reason for one in found)
    if any(one.is_whole for one in found):
        return _("Not offered: %(reasons)s") % {"reasons": reasons}
    if found:
        return _("Offered in part: %(reasons)s") % {"reasons": reasons}
    return _("Offered")
