"""``{% mcp_app %}``: the script with which the page of an MCP App communicates with its host.

The script is inline, since a page in a host's sandbox can load only files of declared origins. It
is ``static/mcp_django/app.js``, which documents its API.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from django import template
from django.utils.safestring import SafeString, mark_safe

SCRIPT = Path(__file__).parent.parent / "static" / "mcp_django" / "app.js"
# Characters that could end the script element, or begin a comment that hides its end.
ESCAPES = {ord("<"): "\\u003C", ord(">"): "\\u003E", ord("&"): "\\u0026"}

register = template.Library()


@register.simple_tag(takes_context=True)
def mcp_app(context: template.Context) -> SafeString:
    """Return the script; it sends the host the name of the tool, if the context contains it."""
    name = json.dumps(str(context.get("tool") or "view")).translate(ESCAPES)
    return mark_safe(f"<script>\n{_read_script()}\nmcp.start({name});\n</script>")  # noqa: S308


@cache
def _read_script() -> str:
    return SCRIPT.read_text(encoding="utf-8").strip()
