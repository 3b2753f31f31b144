"""Notices and briefings: every account reads them, staff write them (see `demo_project.servers`).

The functions come first. Below them, existing code is exposed: a model, a viewset, a page, a form
and an action of the admin.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from demo_project.airports.mcp import Code, complete_code
from demo_project.airports.models import Airport
from demo_project.desk.announcements import notices_uri
from demo_project.desk.answers import (
    AirportNotices,
    Confirmation,
    KeepNotice,
    NoticeCard,
    Review,
    Severity,
)
from demo_project.desk.api import NoticeViewSet
from demo_project.desk.forms import NoticeForm
from demo_project.desk.models import Notice
from demo_project.desk.views import ReportProblemView
from demo_project.servers import staff
from mcp_django import (
    UI,
    Context,
    EmbeddedResource,
    Message,
    ModelResource,
    ModelTools,
    ToolError,
    mcp,
)

ALTERNATES = 5

Shift = Annotated[Literal["early", "late", "night"], "The shift that begins"]
Reason = Annotated[str, "Why it cannot take traffic"]


@mcp.resource("notices://{code}", title="Notices of an airport", mime_type="application/json")
@staff.resource("notices://{code}", title="Notices of an airport", mime_type="application/json")
def notices(code: Code) -> AirportNotices:
    """The current notices of an airport, newest first. Subscribe to be notified of changes."""
    return AirportNotices.of(Airport.objects.by_code(code))


@mcp.tool(title="Current notices", read_only=True, ui="desk/board.html")
@staff.tool(title="Current notices", read_only=True, ui="desk/board.html")
def current_notices(airport: Code) -> AirportNotices:
    """Read the current notices of an airport, newest first."""
    return notices(airport)


@staff.tool(title="Publish a notice", destructive=False, permission="desk.add_notice", atomic=True)
def publish_notice(
    ctx: Context,
    airport: Code,
    title: Annotated[str, Field(min_length=3, max_length=120, description="One line")],
    text: Annotated[str, Field(min_length=3, max_length=2000, description="What to know and do")],
    severity: Severity = "information",
) -> NoticeCard:
    """Publish a notice about an airport, under the name of the user."""
    notice = Notice.objects.create(
        airport=Airport.objects.by_code(airport),
        title=title,
        text=text,
        severity=severity,
        created_by=ctx.user,
    )
    return NoticeCard.of(notice)


@staff.tool(
    title="Close a notice",
    destructive=True,
    permission="desk.change_notice",
    needs=["elicitation"],
)
def close_notice(
    ctx: Context, number: Annotated[int, "The number of a current notice"]
) -> NoticeCard:
    """Close a notice that no longer applies, once the user has confirmed it.

    It stays on record and cannot be opened again.
    """
    notice = Notice.objects.select_related("airport").select_for_update().filter(pk=number).first()
    if notice is None:
        raise ToolError(f"There is no notice {number}; current_notices lists those of an airport.")
    if not notice.is_current:
        raise ToolError(f"Notice {number} was closed on {notice.closed_at:%Y-%m-%d at %H:%M} UTC.")
    # The code above runs twice, before and after the user answers; the code below runs once.
    if not ctx.elicit(f'Close notice {number}, "{notice}", permanently?', Confirmation).confirmed:
        raise ToolError(f"The user did not confirm, so notice {number} stays open.")
    notice.close()
    return NoticeCard.of(notice)


@staff.tool(
    title="Close a notice on the board",
    destructive=True,
    permission="desk.change_notice",
    atomic=True,
    # The board asks the user to confirm. Hosts hide the tool from the model, but this does not
    # protect anything: a model that does see it can do only what the user may do anyway.
    ui=UI(visibility=["app"]),
)
def close_on_board(
    number: Annotated[int, "The number of a current notice"],
) -> AirportNotices:
    """Close a notice from the notice board, and return the notices left on it."""
    notice = Notice.objects.select_related("airport").select_for_update().filter(pk=number).first()
    if notice is None or not notice.is_current:
        raise ToolError(f"Notice {number} is no longer current; read the board again.")
    notice.close()
    return AirportNotices.of(notice.airport)


@staff.tool(
    title="Withdraw all notices of an airport",
    destructive=True,
    permission="desk.change_notice",
    atomic=True,
    # A colleague must approve the call, even if the user is certain.
    approval="staff",
)
def withdraw_notices(airport: Code) -> AirportNotices:
    """Close every current notice of an airport, such as when it is shut down permanently."""
    place = Airport.objects.by_code(airport)
    for notice in place.notices.current().select_for_update():
        notice.close()
    return AirportNotices.of(place)


@staff.tool(
    title="Review the notices of an airport",
    destructive=True,
    permission="desk.change_notice",
    needs=["elicitation"],
    atomic=True,
    # The user may leave, and answer the remaining questions later.
    task="optional",
    ask="during",
)
def review_notices(ctx: Context, airport: Code) -> Review:
    """Ask the user about each current notice of an airport, oldest first; close the outdated ones.

    Nothing is closed before the last question is answered.
    """
    place = Airport.objects.by_code(airport)
    current = list(place.notices.current().select_related("airport").order_by("published_at", "pk"))
    kept_pks: list[int] = []
    for number, notice in enumerate(current, start=1):
        ctx.report_progress(
            number, len(current), f"Notice {number} of {len(current)} at {place.icao}"
        )
        if ctx.elicit(f'Does notice {notice.pk}, "{notice}", still apply?', KeepNotice).holds:
            kept_pks.append(notice.pk)
    outdated = [notice for notice in current if notice.pk not in kept_pks]
    for notice in outdated:
        notice.close()
    return Review(
        airport=place.icao, kept=kept_pks, closed=[NoticeCard.of(notice) for notice in outdated]
    )


@mcp.prompt(title="Shift briefing")
def shift_briefing(airport: Code, shift: Shift) -> list[Message]:
    """Brief the colleague who takes over the desk of an airport."""
    place = Airport.objects.by_code(airport)
    notices_json = TypeAdapter(AirportNotices).dump_json(AirportNotices.of(place), indent=1)
    return [
        Message(
            f"Write a briefing for the {shift} shift at {place}. Begin with what can stop traffic, "
            "then what needs attention, then what is good to know; a line each. Say so if there "
            "is nothing. These are the current notices:"
        ),
        Message(
            EmbeddedResource(
                notices_uri(place.icao), text=notices_json.decode(), mime_type="application/json"
            )
        ),
    ]


@mcp.prompt(title="Diversion plan", template="desk/diversion_plan.txt")
def diversion_plan(airport: Code, reason: Reason = "the runway is closed") -> dict[str, Any]:
    """Find out where to send the traffic of an airport that cannot take it."""
    place = Airport.objects.by_code(airport)
    nearest = Airport.objects.scheduled().nearest(place.position, count=ALTERNATES + 1)
    return {
        "airport": place,
        "reason": reason,
        "alternates": [neighbor for neighbor in nearest if neighbor.airport != place][:ALTERNATES],
        "notices": place.notices.current(),
    }


@mcp.completion(notices, "code")
@mcp.completion(shift_briefing, "airport")
@mcp.completion(diversion_plan, "airport")
@staff.completion(notices, "code")
def complete_airport(value: str) -> Iterable[str]:
    """Return the codes that begin with the text, IATA codes first."""
    return complete_code(value)


# Skills of the desk, in a folder beside this file.
staff.register_skills("skills")


# Existing code ------------------------------------------------------------------------------------


@staff.register(Notice)
class DeskNotices(ModelResource[Notice], ModelTools[Notice]):
    uri = "notices://notice/{id}"
    fields = ["id", "airport__icao", "severity", "title", "text", "published_at", "closed_at"]
    search_fields = ["title", "text"]
    filter_fields = {"airport__icao": ["exact"], "severity": ["in"], "closed_at": ["isnull"]}
    title = "title"
    tools = ["list", "get", "create", "update", "delete"]
    form = NoticeForm
    subscribe = True
    prompts = {"explain": "Explain {object} to a pilot who has never been there."}

    def perform_create(self, ctx: Context, form: Any) -> Notice:
        form.instance.created_by = ctx.user
        return super().perform_create(ctx, form)


mcp.register_viewset(NoticeViewSet, actions=["list"])
mcp.register_view("notice-board", title="Notice board", readable=True)

staff.register_viewset(NoticeViewSet, actions=["replace"], permission="desk.change_notice")
staff.register_form(ReportProblemView, title="Report a problem", permission="desk.add_notice")
staff.register_admin(Notice, tools=[], actions=["close_notices"])
