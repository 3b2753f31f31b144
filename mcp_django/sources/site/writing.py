"""Blocks of text, one after the other: paragraphs, headings, items, rows, code."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_INDENT = 8


@dataclass(slots=True)
class _List:
    is_ordered: bool
    number: int = 0


@dataclass(slots=True)
class Writer:
    """Collects text and knows where a block ends; inside a table everything is one line."""

    _blocks: list[tuple[str, str]] = field(default_factory=list)
    _pieces: list[str] = field(default_factory=list)
    _kind: str = ""
    _prefix: str = ""
    _lists: list[_List] = field(default_factory=list)
    _list: int = 0
    """Which one of the outermost lists it is."""
    _is_code: bool = False
    _tables: int = 0
    """How deep in tables."""
    _table: int = 0
    """Which one it is."""
    _cells: list[str] = field(default_factory=list)
    _rows: int = 0

    def result(self) -> str:
        """Everything written; blocks of one list or table follow each other closely."""
        self._tables = 0
        self.end_code()
        self.block()
        text: list[str] = []
        before = ""
        for kind, block in self._blocks:
            if text:
                text.append("\n" if kind and kind == before else "\n\n")
            text.append(block)
            before = kind
        return "".join(text)

    def text(self, text: str) -> None:
        """Add text to the block."""
        self._pieces.append(text)

    def line_break(self) -> None:
        """Go on in a new line of the same block."""
        self._pieces.append("\n" if self._is_code else " \0 ")

    def block(self) -> None:
        """End the block, if there is anything in it."""
        if self._is_code:
            return
        if self._tables:
            self._pieces.append(" ")
            return
        self._end()

    def rule(self) -> None:
        """Draw a line."""
        self.block()
        if not self._tables and not self._is_code:
            self._blocks.append(("", "---"))

    def heading(self, level: int) -> None:
        """Begin a heading."""
        self.block()
        if not self._tables:
            self._prefix = f"{'#' * level} "

    def begin_list(self, *, is_ordered: bool) -> None:
        """Begin a list, in another one or not."""
        self.block()
        if not self._lists:
            self._list += 1
        self._lists.append(_List(is_ordered))

    def end_list(self) -> None:
        """End the innermost list."""
        self.block()
        if self._lists:
            self._lists.pop()

    def item(self) -> None:
        """Begin an item; one outside of a list is an item all the same."""
        self.block()
        mark = "-"
        if self._lists and self._lists[-1].is_ordered:
            self._lists[-1].number += 1
            mark = f"{self._lists[-1].number}."
        if self._tables:
            return
        indent = "  " * min(max(len(self._lists) - 1, 0), MAX_INDENT)
        self._kind, self._prefix = f"item of {self._list}", f"{indent}{mark} "

    def begin_code(self) -> None:
        """Begin text in which spaces and line ends count."""
        self.block()
        if not self._tables:
            self._is_code = True

    def end_code(self) -> None:
        """End it."""
        if not self._is_code:
            return
        self._is_code = False
        text = "".join(self._pieces).strip("\n").replace("\0", "")
        self._pieces.clear()
        if text.strip():
            self._blocks.append(("", f"```\n{text}\n```"))

    def begin_table(self) -> None:
        """Begin a table; one inside of another is text in its cell."""
        self.block()
        self._tables += 1
        if self._tables == 1:
            self._cells, self._rows = [], 0
            self._table += 1

    def caption(self) -> None:
        """End the caption of a table."""
        if self._tables == 1 and (text := self._collapsed()):
            self._blocks.append(("", text))

    def row(self) -> None:
        """Begin a row."""
        if self._tables == 1:
            self._end_row()

    def cell(self) -> None:
        """Begin a cell."""
        if self._tables == 1:
            self._pieces.clear()

    def end_cell(self) -> None:
        """End a cell."""
        if self._tables == 1:
            self._cells.append(self._collapsed().replace("\n", " ").replace("|", "\\|"))

    def end_table(self) -> None:
        """End the innermost table."""
        if self._tables == 1:
            self._end_row()
        self._tables = max(self._tables - 1, 0)

    def _end_row(self) -> None:
        cells, self._cells = self._cells, []
        if not any(cells):
            return
        self._rows += 1
        kind = f"row of {self._table}"
        self._blocks.append((kind, f"| {' | '.join(cells)} |"))
        if self._rows == 1:
            self._blocks.append((kind, f"|{' --- |' * len(cells)}"))

    def _end(self) -> None:
        text = self._collapsed()
        if not text:
            return
        self._blocks.append((self._kind, f"{self._prefix}{text}"))
        self._kind = self._prefix = ""

    def _collapsed(self) -> str:
        """The text of the block: spaces are one space, and lines end where they were told to."""
        lines = "".join(self._pieces).split("\0")
        self._pieces.clear()
        return "\n".join(" ".join(line.split()) for line in lines).strip()
