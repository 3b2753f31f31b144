"""Where a URLconf has endpoints of ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.conf import settings
from django.urls import URLResolver, get_resolver
from django.utils import translation
from django.utils.regex_helper import normalize


def mounted(urlconf: Any = None) -> list[str]:
    """The paths of all endpoints that have no variables in them, without the script name.

    Read from the patterns, since by its name ``reverse`` finds one of several mounts.
    """
    with translation.override(settings.LANGUAGE_CODE):
        return list(dict.fromkeys(_paths(get_resolver(urlconf).url_patterns, "/")))


def _paths(patterns: Iterable[Any], before: str) -> Iterator[str]:
    for one in patterns:
        regex = before + one.pattern.regex.pattern.lstrip("^")
        if isinstance(one, URLResolver):
            yield from _paths(one.url_patterns, regex)
        elif getattr(one.callback, "endpoint", None) == "mcp":
            # Each possibility is a text with the variables that stand in it.
            yield from (text for text, variables in normalize(regex) if not variables)
