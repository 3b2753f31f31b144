"""Forms of every kind that a host has to show."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Literal

from django import forms
from pydantic import Field


class Cabin(Enum):
    """Where one sits."""

    ECONOMY = "economy"
    BUSINESS = "business"


@dataclass(frozen=True, kw_only=True)
class Refund:
    """What has to be known before money is given back."""

    confirmed: Annotated[bool, Field(description="Yes, give it back")]
    reason: Literal["damaged", "late", "unwanted"] = "unwanted"


@dataclass(frozen=True, kw_only=True)
class Trip:
    """A field of every kind."""

    traveler: Annotated[str, Field(min_length=2, max_length=40)]
    seats: Annotated[int, Field(ge=1, le=9)]
    cabin: Cabin
    leaves: date
    boards: datetime
    is_flexible: bool = False
    budget: Annotated[float, Field(ge=0)] = 99.5
    extras: list[Literal["wifi", "meal", "bag"]] = field(default_factory=list)
    remark: str | None = None


class Complaint(forms.Form):
    """A Django form, whose choices have labels."""

    about = forms.ChoiceField(choices=[("crew", "The crew"), ("seat", "The seat")])
    email = forms.EmailField(help_text="Where the answer goes")
    copies = forms.IntegerField(min_value=0, max_value=3, required=False)
