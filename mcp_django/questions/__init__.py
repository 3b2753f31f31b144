"""What a component may ask its client, and what an answer becomes."""

from __future__ import annotations

from mcp_django.questions.elicit import Elicit, ElicitURL
from mcp_django.questions.question import MalformedAnswer, Question, Unfinished, UnfitAnswer
from mcp_django.questions.roots import ListRoots, Root
from mcp_django.questions.sample import Sample, SampledMessage, ToolResultBlock, ToolUse

__all__ = [
    "Elicit",
    "ElicitURL",
    "ListRoots",
    "MalformedAnswer",
    "Question",
    "Root",
    "Sample",
    "SampledMessage",
    "ToolResultBlock",
    "ToolUse",
    "Unfinished",
    "UnfitAnswer",
]
