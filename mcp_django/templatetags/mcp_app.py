"""``{% mcp_app %}``: what a view needs to talk to its host, within the page itself.

A page in a host's sandbox can load nothing that its policy does not name, so the script is not
linked to. It is `static/mcp_django/app.js`, which tells what it offers.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from django import template
from django.utils.safestring import SafeString, mark_safe

SCRIPT = Path(__file__).parent.parent / "static" / "mcp_django" / "app.js"
# Within a script element, what would end it or begin a comment that hides its end.
ESCAPES = {ord("<"): "\\u003C", ord(">"): "\\u003E", ord("&"): "\\u0026"}

register = template.Library()


@register.simple_tag(takes_context=True)
def mcp_app(context: template.Context) -> SafeString:
    """The script; it tells the host the name of the tool, where the context has one."""
    name = json.dumps(str(context.get("tool") or "view")).translate(ESCAPES)
    return mark_safe(f"<script>\n{_source()}\nmcp.start({name});\n</script>")  # noqa: S308


@cache
def _source() -> str:
    return SCRIPT.read_text(encoding="utf-8").strip()
