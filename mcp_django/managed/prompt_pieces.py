"""A text cut at what stands in braces, in one pass: no text can make this slow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext as _

from mcp_django.managed.prompt_errors import TextError

_CLOSERS = {"{{": "}}", "{%": "%}", "{#": "#}"}
_OPENER = re.compile(r"\{[{%#]")
_END_OF_VERBATIM = re.compile(r"\{% *endverbatim *%\}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Literal text (no opener), or what stands between an opener and its closer."""

    line: int
    opener: str
    text: str


def pieces(text: str, line: int) -> Iterator[Piece]:
    """The pieces of a text, which begins at this line.

    A line that has nothing but one tag or comment leaves nothing behind, not even itself.

    Raises:
        TextError: something is opened and not closed.
    """
    at = 0
    while True:
        found = _OPENER.search(text, at)
        if found is None:
            yield Piece(line, "", text[at:])
            return
        opener, start = found.group(), found.start()
        line_here = line + text.count("\n", at, start)
        end = text.find(_CLOSERS[opener], start + 2)
        line_end = text.find("\n", start)
        if end < 0 or -1 < line_end < end:
            message = _("“%(opener)s” has no “%(closer)s” on its line.")
            values = {"opener": opener, "closer": _CLOSERS[opener]}
            raise TextError(line_here, message % values)
        inside, after = text[start + 2 : end], end + 2
        is_verbatim = opener == "{%" and inside.strip() == "verbatim"
        left, right = (start, after) if opener == "{{" else _alone(text, start, after)
        # What stands before was seen already where this begins within it.
        if left > at:
            yield Piece(line, "", text[at:left])
        line = line_here
        if is_verbatim:
            last = _END_OF_VERBATIM.search(text, right)
            if last is None:
                raise TextError(line, _("“verbatim” has no “endverbatim”."))
            inner_end, after_last = _alone(text, last.start(), last.end())
            inner_end = max(inner_end, right)
            yield Piece(line, "", text[right:inner_end])
            line += text.count("\n", start, after_last)
            at = after_last
            continue
        yield Piece(line, opener, inside)
        line += text.count("\n", start, right)
        at = right


def _alone(text: str, start: int, end: int) -> tuple[int, int]:
    """The extent of a tag, the whole line if it has nothing else."""
    left = start
    while left > 0 and text[left - 1] in " \t":
        left -= 1
    right = end
    while right < len(text) and text[right] in " \t":
        right += 1
    is_first = left == 0 or text[left - 1] == "\n"
    is_last = right == len(text) or text[right] == "\n"
    if not (is_first and is_last):
        return start, end
    return left, min(right + 1, len(text))
