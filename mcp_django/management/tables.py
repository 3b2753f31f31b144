"""Rows of text under each other, no wider than a terminal where that can be helped."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from django.core.management.base import OutputWrapper

WIDTH = 80
GAP = "  "
ELLIPSIS = "…"
# A column is not squeezed below this: a few letters still say which title it is.
NARROWEST = 8


def width_of(stream: OutputWrapper) -> int:
    """The columns of a terminal; those of an ordinary one where the text goes elsewhere."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if stream.isatty() else WIDTH


def columns(
    rows: Sequence[Sequence[str]],
    *,
    width: int = WIDTH,
    indent: int = 0,
    squeeze: Sequence[int] = (),
) -> str:
    """The rows with their columns aligned, a line for each.

    Columns named in ``squeeze`` are shortened, in this order, as far as the width demands; the
    others are kept whole, since names are there to be copied.
    """
    table = [[_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    # A column that is empty in every row takes no room.
    room = width - indent - len(GAP) * (sum(map(bool, widths)) - 1)
    for index in squeeze:
        excess = sum(widths) - room
        if excess > 0:
            widths[index] = max(widths[index] - excess, min(widths[index], NARROWEST))
    return "\n".join(" " * indent + _row(row, widths) for row in table)


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [_fit(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True)]
    return GAP.join(cell for cell, width in zip(cells, widths, strict=True) if width).rstrip()


def _fit(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + ELLIPSIS


def _line(cell: str) -> str:
    return " ".join(cell.split())
