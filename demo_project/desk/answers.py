"""Return types and forms of the desk's tools and resources."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, Self, cast

from demo_project.airports.models import Airport
from demo_project.desk.models import Notice

Severity = Literal["information", "caution", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The form that the user confirms before something that cannot be undone."""

    confirmed: Annotated[bool, "Yes, do it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeCard:
    """One notice."""

    number: int
    airport: str
    severity: Severity
    title: str
    text: str
    published_at: datetime
    closed_at: datetime | None

    @classmethod
    def of(cls, notice: Notice) -> Self:
        return cls(
            number=notice.pk,
            airport=notice.airport.icao,
            severity=cast(Severity, notice.severity),
            title=notice.title,
            text=notice.text,
            published_at=notice.published_at,
            closed_at=notice.closed_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AirportNotices:
    """The current notices of an airport, newest first."""

    airport: str
    name: str
    notices: list[NoticeCard]

    @classmethod
    def of(cls, airport: Airport) -> Self:
        return cls(
            airport=airport.icao,
            name=airport.name,
            notices=[
                NoticeCard.of(notice)
                for notice in airport.notices.current().select_related("airport")
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepNotice:
    """The form that the user fills in about each notice of a review."""

    holds: Annotated[bool, "Yes, keep it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The result of a review of the notices of an airport."""

    airport: str
    kept: list[int]
    closed: list[NoticeCard]
