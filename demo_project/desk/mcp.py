"""Notices and briefings: everybody reads them, staff writes them (see `demo_project.servers`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from demo_project.airports.mcp import Code, complete_code
from demo_project.airports.models import Airport
from demo_project.desk.announcements import notices_uri
from demo_project.desk.answers import AirportNotices, NoticeCard, Severity
from demo_project.desk.models import Notice
from demo_project.servers import staff
from mcp_django import Context, EmbeddedResource, Message, ToolError, mcp

ALTERNATES = 5

Shift = Annotated[Literal["early", "late", "night"], "The shift that begins"]
Reason = Annotated[str, "Why it cannot take traffic"]


@mcp.resource("notices://{code}", title="Notices of an airport", mime_type="application/json")
@staff.resource("notices://{code}", title="Notices of an airport", mime_type="application/json")
def notices(code: Code) -> AirportNotices:
    """The current notices of an airport, newest first. Subscribe to hear of changes."""
    return AirportNotices.of(Airport.objects.by_code(code))


@mcp.tool(title="Current notices", read_only=True)
@staff.tool(title="Current notices", read_only=True)
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


@staff.tool(title="Close a notice", destructive=True, permission="desk.change_notice", atomic=True)
def close_notice(number: Annotated[int, "The number of a current notice"]) -> NoticeCard:
    """Close a notice that no longer holds. It stays on record and cannot be opened again."""
    notice = Notice.objects.select_related("airport").select_for_update().filter(pk=number).first()
    if notice is None:
        raise ToolError(f"There is no notice {number}; current_notices lists those of an airport.")
    if not notice.is_current:
        raise ToolError(f"Notice {number} was closed on {notice.closed_at:%Y-%m-%d at %H:%M} UTC.")
    notice.close()
    return NoticeCard.of(notice)


@mcp.prompt(title="Shift briefing")
def shift_briefing(airport: Code, shift: Shift) -> list[Message]:
    """Brief the colleague who takes over the desk of an airport."""
    place = Airport.objects.by_code(airport)
    found = TypeAdapter(AirportNotices).dump_json(AirportNotices.of(place), indent=1)
    return [
        Message(
            f"Write a briefing for the {shift} shift at {place}. Begin with what can stop traffic, "
            "then what needs attention, then what is good to know; a line each. Say so if there "
            "is nothing. These are the current notices:"
        ),
        Message(
            EmbeddedResource(
                notices_uri(place.icao), text=found.decode(), mime_type="application/json"
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
        "alternates": [one for one in nearest if one.airport != place][:ALTERNATES],
        "notices": place.notices.current(),
    }


@mcp.completion(notices, "code")
@mcp.completion(shift_briefing, "airport")
@mcp.completion(diversion_plan, "airport")
@staff.completion(notices, "code")
def complete_airport(value: str) -> Iterable[str]:
    """Codes that begin with what was typed, IATA codes first."""
    return complete_code(value)
