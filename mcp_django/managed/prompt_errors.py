"""What is wrong with a prompt, in words for its author."""

from __future__ import annotations

from django.utils.translation import gettext as _


class PromptError(ValueError):
    """A prompt that cannot be offered as it is written, in words for its author."""


class TextError(PromptError):
    """A text that cannot be read; names the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(
            _("Line %(line)d: %(message)s") % {"line": line, "message": message},
        )
        self.line = line
