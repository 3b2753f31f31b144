"""Writes the table of the decorators' options in ref/api.md: `python -m docs.options`.

It is made from `mcp_django/components/options.py`; a test fails if it is out of date.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = (
    Path(__file__).resolve().parents[1] / "mcp_django" / "components" / "options.py"
)
PAGE = Path(__file__).resolve().parent / "ref" / "api.md"
BEGIN = "<!-- options: made by python -m docs.options -->\n"
END = "<!-- end of options -->\n"
KINDS = ("tool", "resource", "prompt")
# Which kinds have the options of a class.
CLASSES = {
    "ComponentOptions": KINDS,
    "ToolOptions": ("tool",),
    "ResourceOptions": ("resource",),
    "PromptOptions": ("prompt",),
}
# Words of a meaning that lead to a page.
LINKS = {
    "aliases": ("Former names", "../howto/contract.md#aliases"),
    "permission": ("permission", "../topics/permissions.md"),
    "scopes": ("Scopes", "../topics/permissions.md#scopes"),
    "rate": ("rate limits", "../topics/limits.md"),
    "approval": ("approves", "../topics/approvals.md"),
    "task": ("task", "../topics/tasks.md"),
    "ui": ("MCP App", "../topics/apps.md"),
    "log_arguments": ("call log", "../topics/calls.md"),
    "read_only": ("enforced", "../topics/limits.md#read-only-limits"),
    "strict_schema": (
        "schemas",
        "../topics/tools.md#schemas-types-of-arguments-and-results",
    ),
}


def options() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield each option with the kinds that have it and its meaning in Markdown."""
    for definition in ast.parse(SOURCE.read_text()).body:
        kinds = CLASSES.get(getattr(definition, "name", ""))
        if kinds is None:
            continue
        for member, meaning in zip(definition.body, definition.body[1:], strict=False):
            if isinstance(member, ast.AnnAssign):
                text = " ".join(ast.literal_eval(meaning.value).split()).replace(
                    "``", "`"
                )
                words, page = LINKS.get(member.target.id, ("", ""))
                if words:
                    text = re.sub(rf"\b{words}\b", f"[{words}]({page})", text, count=1)
                yield member.target.id, kinds, text


def table() -> str:
    """Return the table of all options."""
    rows = ["| option | tool | resource | prompt | meaning |", "|---|---|---|---|---|"]
    for name, kinds, meaning in options():
        cells = " | ".join("yes" if kind in kinds else "" for kind in KINDS)
        rows.append(
            f"| `{name}` | {cells} | {meaning} |".replace("|  |", "| |").replace(
                "|  |", "| |"
            )
        )
    return "\n".join(rows) + "\n"


def page() -> str:
    """Return the text of the page with the table as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())
