"""Descriptions of generated tools, for a model to choose by; the schemas say the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_django.sources.models.tools import ModelTools


def list_words(declaration: ModelTools[Any]) -> str:
    """What listing is for."""
    ways = [
        word
        for word, option in (
            ("search", "search_fields"),
            ("filter", "filter_fields"),
            ("order", "ordering_fields"),
        )
        if getattr(declaration, option)
    ]
    how = f" {' and '.join(ways).capitalize()} by the arguments." if ways else ""
    return _with_doc(declaration, f"List {declaration.nouns}.{how}")


def get_words(declaration: ModelTools[Any]) -> str:
    """What getting is for."""
    return _with_doc(declaration, f"Get one {declaration.noun} by its {declaration.lookup.name}.")


def count_words(declaration: ModelTools[Any]) -> str:
    """What counting is for."""
    return _with_doc(
        declaration,
        f"Count {declaration.nouns}, in groups if asked, with sums, averages and extremes.",
    )


def _with_doc(declaration: ModelTools[Any], words: str) -> str:
    return f"{words} {declaration.doc}" if declaration.doc else words
