"""What a page of the admin says, and that it may say it under a strict policy."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client


def page(client: Client, address: str, status: int = 200) -> str:
    """The markup of a page, which answers with this status."""
    response = client.get(address)
    assert response.status_code == status
    return response.content.decode()


def text_of(response: Any) -> str:
    """What a page says, without its markup."""
    html = re.sub(r"<(script|style)\b.*?</\1>", "", response.content.decode(), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def has_inline_code(response: Any) -> bool:
    """Whether a page has anything that a strict content security policy forbids."""
    html = response.content.decode()
    scripts = [tag for tag in re.findall(r"<script\b[^>]*>", html) if "src=" not in tag]
    return bool(scripts or re.search(r"<style\b|\sstyle=|\son[a-z]+=", html))
