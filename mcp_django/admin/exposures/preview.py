"""What clients would be shown of an exposure, and which rows its author would see himself."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import router, transaction
from django.utils.translation import gettext as _

from mcp_django.admin.servers import server_of
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.core.component import Component
from mcp_django.core.context import Context
from mcp_django.execution.handlers import prompts, resources, tools
from mcp_django.execution.policy import visible
from mcp_django.integrations.models.declaration import ModelComponents
from mcp_django.integrations.models.row_access import permitted
from mcp_django.overrides import state
from mcp_django.overrides.exposures import build, files_of
from mcp_django.overrides.override_values import AS_IN_CODE, ExposureSpec, narrowed
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.revisions import LATEST

logger = logging.getLogger("mcp_django")

BYTES_PER_TOKEN = 4
SAMPLE = 5
LISTS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "tool": tools.describe,
    "resource": resources.describe_resource,
    "resource template": resources.describe_template,
    "prompt": prompts.describe,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntry:
    """One entry of a list as clients get it, about so many tokens long."""

    kind: str
    key: str
    text: str
    tokens: int
    files: list[str]
    """The fields of a form that it leaves out, since JSON carries no files."""
    is_visible: bool
    """Whether the author would find it in his own list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The first rows as the author sees them, as texts; ``note`` where there are none."""

    names: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What is shown below the form."""

    entries: list[ListEntry]
    problems: list[str]
    sample: Sample | None = None

    @property
    def tokens(self) -> int:
        """About how much of a model's context all entries take."""
        return sum(one.tokens for one in self.entries)


def preview_of(spec: ExposureSpec, user: Any) -> Preview:
    """What a row would become, as this user would see it; nothing is kept."""
    server = server_of(spec.server)
    decisions = state.read().get(spec.server, state.UNMANAGED)
    others = [one for one in decisions.exposures if one.pk != spec.pk]
    made = build(server, spec.server, [*others, spec])
    principal = principal_for(user)
    offered = (
        narrowed(one, decisions.overrides.get((one.kind, one.key), AS_IN_CODE))
        for one in made.of(spec)
    )
    components = [one for one in offered if one is not None]
    return Preview(
        entries=[_entry(one, principal) for one in components],
        problems=[one.reason for one in made.wrong_with(spec)],
        sample=_sample(server, made.declarations(spec), components, principal),
    )


def _entry(component: Component, principal: Principal) -> ListEntry:
    wire = LISTS[component.kind](component)
    return ListEntry(
        kind=component.kind,
        key=component.key,
        text=json.dumps(wire, indent=2, ensure_ascii=False, default=str),
        tokens=math.ceil(len(encode(wire)) / BYTES_PER_TOKEN),
        files=sorted(files_of(component)),
        is_visible=visible(principal, component),
    )


def _sample(
    server: Any,
    declarations: list[ModelComponents[Any]],
    components: list[Component],
    principal: Principal,
) -> Sample | None:
    """The first rows of a model, through the same gate as those of a call."""
    if server is None or not declarations:
        return None
    reading_ones = [one for one in components if one.read_only]
    if not any(visible(principal, one) for one in reading_ones):
        return Sample(names=[], rows=[], note=_("You would not see any row yourself."))
    declaration = declarations[-1]
    ctx = Context(server=server, principal=principal, protocol_version=LATEST.version)
    load = partial(_rows, declaration, ctx)
    try:
        with transaction.atomic(using=router.db_for_read(declaration.model)):
            rows = load()
    except Exception:
        # The site's own code is asked: its managers, row gates and names of objects.
        logger.exception("The rows of the %s cannot be shown.", declaration)
        return Sample(names=[], rows=[], note=_("The rows cannot be read; the reason was logged."))
    names = list(rows[0]) if rows else []
    texts = [[_text(row[name]) for name in names] for row in rows]
    return Sample(names=names, rows=texts, note="" if rows else _("You see no row."))


def _rows(declaration: ModelComponents[Any], ctx: Context) -> list[dict[str, Any]]:
    found = permitted(declaration, ctx, declaration.rows(ctx)).order_by("pk")
    exposed = declaration.exposed
    return exposed.dump_all(exposed.prepare(found, ctx)[:SAMPLE], ctx)


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 300 else f"{text[:300]}…"
