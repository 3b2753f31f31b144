"""Maps of airports as PNG images.

The projection is azimuthal and equidistant: distances and directions from the center are true, so
a map of Fiji or of the South Pole needs no special case. The maps have no coastlines; with 28 000
airports, the dots show where land is. They are drawn with Pillow, without models.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from demo_project.airports.geo import (
    HALF_CIRCUMFERENCE_KM,
    Position,
    bearing_degrees,
    distance_km,
    from_vector,
    to_vector,
)

SIZE = 720
MARGIN = 40
MAX_LABELS = 40
MAX_RINGS = 5
# With more dots than this, the dots are drawn smaller.
CROWD = 2000

Color = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
TextBox = tuple[float, float, float, float]

PAPER: Color = (247, 249, 251)
INK: Color = (34, 45, 57)
FAINT: Color = (205, 213, 222)
OTHER: Color = (176, 188, 200)
ACCENT: Color = (196, 43, 28)
LOWLAND: Color = (31, 122, 77)
HIGHLAND: Color = (150, 84, 32)
HIGHLAND_FT = 8000


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One airport on a map."""

    label: str
    position: Position
    elevation_ft: int = 0
    is_subject: bool = True
    """Whether it belongs to the subject of the map; other dots are drawn pale, as surroundings."""


def center_of(positions: Sequence[Position]) -> Position:
    """Return the center of the positions, even if they are on both sides of the antimeridian.

    Raises:
        ValueError: there are no positions.
    """
    if not positions:
        raise ValueError("No positions were given; their center is not defined.")
    x, y, z = (sum(axis) for axis in zip(*map(to_vector, positions), strict=True))
    return from_vector((x, y, z))


def draw_map(
    dots: Iterable[Dot], *, title: str, center: Position, radius_km: float, mark: str | None = None
) -> bytes:
    """Return a square PNG of the dots within `radius_km` of the center.

    The dot whose label is `mark` is highlighted. Where labels would overlap, only the first dot
    gets its label.
    """
    sheet = _Sheet(center=center, radius_km=min(radius_km, HALF_CIRCUMFERENCE_KM))
    return sheet.draw(dots, title=title, mark=mark)


class _Sheet:
    def __init__(self, *, center: Position, radius_km: float) -> None:
        self._center = center
        self._radius_km = radius_km
        self._middle = SIZE / 2
        self._scale = (self._middle - MARGIN) / radius_km
        self._image = Image.new("RGB", (SIZE, SIZE), PAPER)
        self._pen = ImageDraw.Draw(self._image)
        self._font: Font = ImageFont.load_default(size=12)
        self._heading_font: Font = ImageFont.load_default(size=16)
        self._taken: list[TextBox] = []

    def draw(self, dots: Iterable[Dot], *, title: str, mark: str | None) -> bytes:
        visible = [dot for dot in dots if self._km(dot) <= self._radius_km]
        visible.sort(key=lambda dot: dot.label != mark)
        subjects = [dot for dot in visible if dot.is_subject]
        radius = 1 if len(visible) > CROWD else 2
        self._draw_rings()
        for dot in sorted(visible, key=lambda dot: dot.is_subject):
            self._draw_dot(dot, _shade(dot.elevation_ft) if dot.is_subject else OTHER, radius)
        for dot in subjects:
            if len(self._taken) == MAX_LABELS:
                break
            self._draw_label(dot)
        for dot in visible[:1]:
            if dot.label == mark:
                self._draw_dot(dot, ACCENT, 5)
        heading = f"{title}: {len(subjects):,} airport{'' if len(subjects) == 1 else 's'}"
        self._write((12, 10), heading, color=INK, font=self._heading_font)
        return self._to_png()

    def _draw_rings(self) -> None:
        step_km = _round_step(self._radius_km / MAX_RINGS)
        for ring in range(1, math.floor(self._radius_km / step_km) + 1):
            radius = ring * step_km * self._scale
            low, high = self._middle - radius, self._middle + radius
            self._pen.ellipse((low, low, high, high), outline=FAINT)
            self._write((self._middle + 4, low + 2), f"{ring * step_km:,} km", color=OTHER)
        self._pen.line((self._middle, MARGIN, self._middle, SIZE - MARGIN), fill=FAINT)
        self._pen.line((MARGIN, self._middle, SIZE - MARGIN, self._middle), fill=FAINT)
        self._write((self._middle - 16, MARGIN + 2), "N", color=INK)

    def _draw_dot(self, dot: Dot, color: Color, radius: int) -> None:
        x, y = self._pixel(dot)
        self._pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)

    def _draw_label(self, dot: Dot) -> None:
        """Write the label beside its dot, unless it would overlap another label."""
        x, y = self._pixel(dot)
        corner = (x + 6, y - 7)
        box = self._pen.textbbox(corner, dot.label, font=self._font)
        if not any(_overlap(box, other) for other in self._taken):
            self._taken.append(box)
            self._write(corner, dot.label, color=INK)

    def _write(
        self,
        corner: tuple[float, float],
        text: str,
        *,
        color: Color,
        font: Font | None = None,
    ) -> None:
        """Write text with a thin halo, so that it is legible on top of dots."""
        self._pen.text(
            corner, text, fill=color, font=font or self._font, stroke_width=2, stroke_fill=PAPER
        )

    def _pixel(self, dot: Dot) -> tuple[float, float]:
        direction = math.radians(bearing_degrees(self._center, dot.position))
        length = self._km(dot) * self._scale
        return (
            self._middle + length * math.sin(direction),
            self._middle - length * math.cos(direction),
        )

    def _km(self, dot: Dot) -> float:
        return distance_km(self._center, dot.position)

    def _to_png(self) -> bytes:
        buffer = io.BytesIO()
        self._image.save(buffer, format="PNG", optimize=True)
        return buffer.getvalue()


def _shade(elevation_ft: int) -> Color:
    """Return the color of an elevation, from green at sea level to brown in the mountains."""
    height = max(0.0, min(1.0, elevation_ft / HIGHLAND_FT))
    red, green, blue = (
        round(low + (high - low) * height) for low, high in zip(LOWLAND, HIGHLAND, strict=True)
    )
    return red, green, blue


def _round_step(least_km: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50, … that is not below `least_km`."""
    power = int(10 ** math.floor(math.log10(max(least_km, 1))))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least_km)


def _overlap(box: TextBox, other: TextBox) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
