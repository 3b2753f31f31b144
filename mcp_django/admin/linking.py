"""Links from one screen to the page of a row on another."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString


def linked(model: str, pk: Any, text: str) -> SafeString | str:
    """The text, and the way to the row if there is one."""
    if pk is None:
        return text
    url = reverse(f"admin:mcp_django_{model}_change", args=[quote(pk)])
    return format_html('<a href="{}">{}</a>', url, text)
