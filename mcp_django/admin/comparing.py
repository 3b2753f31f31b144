"""What code says, what the admin says, and what comes of both: the rows of one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from mcp_django.admin.viewing import view_lines
from mcp_django.auth.permissions import permissions
from mcp_django.core import component as components
from mcp_django.core.tool import Tool
from mcp_django.management.facts import estimated_tokens
from mcp_django.management.kinds import kind_of
from mcp_django.models import Component, Server
from mcp_django.overrides.override_values import Override, guards_of, narrowed
from mcp_django.overrides.state import COMPONENT_NARROWING, NARROWING, decisions_of, override_of
from mcp_django.protocol.revisions import LATEST
from mcp_django.server import MCPServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that can be narrowed; an empty text stands for nothing said."""

    label: str
    code: str
    admin: str
    effect: str


def find(server: MCPServer | None, row: Component) -> components.Component | None:
    """What code has under the name of a row."""
    return server.available.tables.get(row.kind, {}).get(row.key) if server is not None else None


def is_readable(row: Component) -> bool:
    """Whether what a row says can be meant; one that cannot switches its component off."""
    return _override(row).is_enabled


def _override(row: Component) -> Override:
    """What a row says, but for whether it is switched on."""
    said = {name: getattr(row, name) for name in (*NARROWING, *COMPONENT_NARROWING)}
    return override_of({**said, "is_enabled": True}, name=row.key)


def component_lines(declared: components.Component, row: Component) -> list[Line]:
    """The lines of one component; the effect is that of being enabled."""
    override = _override(row)
    effect = narrowed(declared, override)
    if effect is None:
        return [_unreadable()]
    found = [
        _text(_("title"), declared.title, row.title, effect.title),
        _text(_("description"), declared.description, row.description, effect.description),
        Line(
            label=_("permissions"),
            code=_guards(declared.permission),
            admin=_guards(guards_of(override.groups, override.permissions)),
            effect=_guards(effect.permission),
        ),
        _list(_("scopes"), declared.scopes, override.scopes, effect.scopes),
        _list(_("rate"), declared.rates, override.rates, effect.rates),
    ]
    if isinstance(declared, Tool) and isinstance(effect, Tool):
        found.append(
            _text(
                _("approval"),
                _approval(declared.approval),
                _approval(row.approval),
                _approval(effect.approval),
            )
        )
        if declared.task:
            found.append(_text(_("runs"), _task(declared), "", _task(effect)))
    found.extend(
        Line(label=label, code=text, admin="", effect=text) for label, text in view_lines(declared)
    )
    sizes = [_size(one) for one in (declared, effect)]
    found.append(Line(label=_("size in a list"), code=sizes[0], admin="", effect=sizes[1]))
    return found


def server_lines(server: MCPServer, row: Server) -> list[Line]:
    """The lines of one server; the effect is that of being enabled."""
    title, instructions = server.title_in_code, server.instructions_in_code
    said = {name: getattr(row, name) for name in ("name", "instructions", *NARROWING)}
    decisions = decisions_of({**said, "is_enabled": True}, {})
    if not decisions.is_enabled:
        return [_unreadable()]
    in_admin = guards_of(decisions.groups, decisions.permissions)
    return [
        _text(_("title"), title, row.title, row.title or title),
        _text(_("instructions"), instructions, row.instructions, row.instructions or instructions),
        Line(
            label=_("permissions"),
            code=_guards(server.permission),
            admin=_guards(in_admin),
            effect=_guards((server.permission, *in_admin)),
        ),
        _list(
            _("rate"),
            server.rates_in_code,
            decisions.rates,
            (*server.rates_in_code, *decisions.rates),
        ),
    ]


def _unreadable() -> Line:
    return Line(label=_("everything"), code="", admin=_("cannot be read"), effect=_("switched off"))


def _text(label: str, code: Any, admin: Any, effect: Any) -> Line:
    return Line(label=label, code=str(code), admin=str(admin), effect=str(effect))


def _list(label: str, code: Iterable[Any], admin: Sequence[Any], effect: Iterable[Any]) -> Line:
    texts = [", ".join(map(str, one)) for one in (code, admin, effect)]
    return Line(label=label, code=texts[0], admin=texts[1], effect=texts[2])


def _guards(declared: Any) -> str:
    return _(" and ").join(dict.fromkeys(map(str, permissions(declared))))


def _approval(value: str) -> str:
    return str(Component.Approval(value).label) if value else ""


def _task(tool: Tool) -> str:
    asks = _("asks before the task") if tool.ask == "before" else _("asks during the task")
    if tool.task == "optional":
        ways = _("as a task where the client can")
    elif tool.handle:
        ways = _("only as a task, with a handle for other clients")
    else:
        ways = _("only as a task")
    return f"{ways}, {asks}"


def _size(component: components.Component) -> str:
    wire = kind_of(component).wire(component, LATEST)
    return _("about %(count)s tokens") % {"count": f"{estimated_tokens(wire):,}"}
