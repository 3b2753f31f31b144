"""Sessions of the handshake revisions in the admin: the list, one session, and termination."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from mcp_django.admin.base import ConditionFilter, client_name, local_time, render_list, time_column
from mcp_django.admin_base import RevocableAdmin
from mcp_django.conf import get_settings
from mcp_django.models import Session, Stream, Subscription
from mcp_django.protocol.text import clip
from mcp_django.storage import sessions
from mcp_django.storage.databases import rows, rows_of_tenant, seconds_ago, write_alias

# Limits for display: items of a list, and characters of a client's name and of a text.
MAX_ITEMS_SHOWN = 100
NAME_LENGTH = 80
SHOWN_TEXT = 20_000
LEGACY = "/sse"
# The client capabilities that revision 2026-07-28 deprecates.
DEPRECATED = ("roots", "sampling")


def _is_live() -> Q:
    """Return the condition for sessions that are not ended, expired or idle for too long."""
    return Q(expires_at__gt=Now(), seen_at__gt=seconds_ago(get_settings().session_idle))


class SessionStateFilter(ConditionFilter):
    """A filter by live or ended sessions."""

    title = _("state")
    parameter_name = "state"

    def conditions(self) -> dict[str, tuple[Any, Q]]:
        """Return the two states."""
        return {"live": (_("live"), _is_live()), "over": (_("ended"), ~_is_live())}


@admin.register(Session)
class SessionAdmin(RevocableAdmin):
    """Sessions with their streams and subscriptions; they can be terminated but not edited."""

    action_name, action_label = "terminate", _("Terminate")
    confirmation_text = _(
        "The streams of the session end in every process within seconds, and further requests "
        "get a 404. The client then starts a new session; to block it, revoke its access."
    )
    done_message = _("Terminated.")

    change_list_template = "admin/mcp_django/session_list.html"
    list_display = [
        *("client", "live", "user", "server_name", "protocol_version"),
        *("stream_count", "subscription_count", time_column("seen_at", _("last seen"))),
    ]
    list_filter = [SessionStateFilter, "protocol_version", "server"]
    list_select_related = ["user"]
    show_full_result_count = False
    actions = ["terminate"]
    fieldsets = [
        (None, {"fields": ["client", "user", "principal", "live"]}),
        (
            _("Handshake"),
            {
                "fields": [
                    "server_name",
                    "transport",
                    "protocol_version",
                    "is_initialized",
                    "log_level",
                    "capability_text",
                ]
            },
        ),
        (_("Times"), {"fields": ["created_at", "seen_at", "expires_at"]}),
        (_("Streams and subscriptions"), {"fields": ["stream_list", "subscription_list"]}),
    ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return false: clients open sessions."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the sessions with their numbers of streams and subscriptions, in one query."""
        open_streams = _count_subquery(rows(Stream).filter(state=Stream.State.OPEN))
        # The client chooses the size of its capabilities, and no column of the list shows them.
        return (
            rows_of_tenant(Session)
            .defer("capabilities")
            .annotate(
                subscription_count=_count_subquery(rows(Subscription)),
                stream_count=open_streams,
                is_live=_is_live(),
            )
        )

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """Return the search fields, with the username field of the user model."""
        return ["principal", "server", f"user__{get_user_model().USERNAME_FIELD}"]

    def end(self, request: HttpRequest, rows: Sequence[Session]) -> None:
        """Terminate the sessions after this transaction commits: other processes read the rows."""
        pks = [row.pk for row in rows]
        transaction.on_commit(partial(sessions.end_sessions, pks), using=write_alias())

    def is_ended(self, row: Any) -> bool:
        """Return whether the session was ended, has expired or is idle for too long."""
        return not row.is_live

    @admin.action(description=_("Terminate selected sessions"), permissions=["end"])
    def terminate(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponse | None:
        """Ask for confirmation, then terminate the selected sessions in every process."""
        return self.end_selected(
            request,
            queryset,
            lambda n: ngettext(
                "%(n)d session was terminated.", "%(n)d sessions were terminated.", n
            ),
        )

    @admin.display(description=_("client"))
    def client(self, row: Session) -> str:
        """Return the name and version that the client sent."""
        return client_name(row.client_info)[:NAME_LENGTH] or gettext("unknown")

    @admin.display(description=_("server"), ordering="server")
    def server_name(self, row: Session) -> str:
        """Return the name of the server, without the suffix for the transport."""
        return row.server.removesuffix(LEGACY)

    @admin.display(description=_("transport"))
    def transport(self, row: Session) -> str:
        """Return the transport, one of the two that store sessions in the database."""
        if row.server.endswith(LEGACY):
            return gettext("%(what)s (deprecated)") % {"what": "HTTP+SSE"}
        return "Streamable HTTP"

    @admin.display(description=_("subscriptions"), ordering="subscription_count")
    def subscription_count(self, row: Any) -> int:
        """Return the number of subscribed resources."""
        return int(row.subscription_count)

    @admin.display(description=_("open streams"), ordering="stream_count")
    def stream_count(self, row: Any) -> int:
        """Return the number of open streams."""
        return int(row.stream_count)

    @admin.display(description=_("live"), boolean=True)
    def live(self, row: Any) -> bool:
        """Return whether requests may still use the session."""
        return bool(row.is_live)

    @admin.display(description=_("capabilities of the client"))
    def capability_text(self, row: Session) -> SafeString:
        """Return the declared capabilities of the client, with a note on deprecated ones."""
        text = json.dumps(row.capabilities, indent=2, ensure_ascii=False)
        html = format_html('<pre class="mcp-code">{}</pre>', clip(text, limit=SHOWN_TEXT))
        capabilities = row.capabilities if isinstance(row.capabilities, dict) else {}
        names = ", ".join(name for name in DEPRECATED if name in capabilities)
        if not names:
            return html
        note = gettext("Deprecated by revision 2026-07-28, but still supported: %(names)s")
        return format_html("{}<p>{}</p>", html, note % {"names": names})

    @admin.display(description=_("streams"))
    def stream_list(self, row: Session) -> SafeString | str:
        """Return the newest streams, including complete ones that can still be resumed."""
        streams = (
            rows(Stream)
            .filter(session=row.pk)
            .order_by("-created_at", "-pk")[: MAX_ITEMS_SHOWN + 1]
        )
        text = gettext("%(kind)s, %(state)s, since %(since)s, %(events)d events")
        return _render_first(
            [
                text
                % {
                    "kind": stream.get_kind_display(),
                    "state": stream.get_state_display(),
                    "since": local_time(stream.created_at),
                    "events": stream.last_seq,
                }
                for stream in streams
            ]
        )

    @admin.display(description=_("subscriptions"))
    def subscription_list(self, row: Session) -> SafeString | str:
        """Return the URIs of the subscribed resources."""
        subscriptions = (
            rows(Subscription).filter(session=row.pk).order_by("pk")[: MAX_ITEMS_SHOWN + 1]
        )
        return _render_first([subscription.uri for subscription in subscriptions])


def _count_subquery(queryset: QuerySet[Any]) -> Any:
    """Return the number of rows per session as a subquery; joins would multiply them."""
    counted = queryset.filter(session=OuterRef("pk")).order_by().values("session")
    return Coalesce(Subquery(counted.annotate(n=Count("pk")).values("n")), 0)


def _render_first(lines: Sequence[str]) -> SafeString | str:
    if not lines:
        return gettext("none")
    more = [gettext("and more")] if len(lines) > MAX_ITEMS_SHOWN else []
    return render_list([*lines[:MAX_ITEMS_SHOWN], *more])
