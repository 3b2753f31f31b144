"""A chat with the demo, drawn as a host shows it: the calls and their results are real.

No host that can be run here has a window to take a picture of, so the window is drawn; its texts
say what the results say.
"""

from __future__ import annotations

import html
import json
from typing import Any

from tests.interop.demo_site import DemoServer
from tests.interop.wire import Wire

QUESTION = "We have to divert near Reykjavík. Which airports are closest? Show me a map."
PLACE = {"latitude": 64.1466, "longitude": -21.9426, "count": 3}
RADIUS = 150
WIDTH = 860
STYLE = """
* { box-sizing: border-box; }
body { margin: 0; padding: 28px; background: #f7f7f4; color: #22272e;
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 760px; margin: 0 auto; padding: 22px 26px; background: #fff;
  border: 1px solid #e2e2dc; border-radius: 14px; }
.user { margin-left: auto; width: fit-content; max-width: 78%; padding: 10px 14px;
  border-radius: 14px; background: #eceff3; }
.call { margin: 14px 0; padding: 10px 14px; border: 1px solid #dcdfe4; border-radius: 10px; }
.call b { font-weight: 600; }
.call code { display: block; margin-top: 4px; color: #57606a;
  font: 12.5px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; margin: 10px auto 0; border-radius: 8px; }
p { margin: 12px 0; }
"""


def page(demo: DemoServer) -> str:
    """Ask the demo, and return the chat as a page."""
    with Wire(demo.url, token=demo.token) as guest:
        nearest = guest.call("nearest_airports", **PLACE)
        rows = nearest["structuredContent"]
        code = rows[0]["airport"]["icao"]
        drawn = guest.call("airport_map", place=code, radius_km=RADIUS)
    picture = next(one for one in drawn["content"] if one["type"] == "image")
    named = ", ".join(
        f"{row['airport']['name']} ({row['airport']['icao']}, {row['distance_km']} km)"
        for row in rows
    )
    parts = [
        f'<div class="user">{html.escape(QUESTION)}</div>',
        _call("nearest_airports", PLACE, nearest),
        f"<p>The three closest are {html.escape(named)}.</p>",
        _call("airport_map", {"place": code, "radius_km": RADIUS}, None),
        f'<img src="data:{picture["mimeType"]};base64,{picture["data"]}" height="330">',
    ]
    return f"<!doctype html><style>{STYLE}</style><main id=content>{''.join(parts)}</main>"


def _call(name: str, arguments: dict[str, Any], result: dict[str, Any] | None) -> str:
    shown = [json.dumps(arguments)]
    if result is not None:
        shown.append(f"→ {json.dumps(result['structuredContent'], ensure_ascii=False)[:230]}…")
    codes = "".join(f"<code>{html.escape(one)}</code>" for one in shown)
    return f'<div class="call"><b>airports</b> · {html.escape(name)}{codes}</div>'
