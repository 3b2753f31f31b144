"""What is wrong with a skill, in words for its author."""

from __future__ import annotations


class SkillError(ValueError):
    """A skill that cannot be offered; ``field`` names what is wrong with it, if one thing is."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field
