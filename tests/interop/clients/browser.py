"""The browser of a program that signs in: `browser.py PERSON OPENED URL`.

The person (`tests.oauth.live.person`) signs in and consents at the URL, which is written to the
file of opened URLs; then the browser opens the program's URL that the person was redirected to.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.request import Request, urlopen

SECONDS = 150


def main(person: str, opened: str, url: str) -> None:
    with Path(opened).open("a", encoding="utf-8") as file:
        file.write(f"{url}\n")
    request = Request(person, json.dumps({"authorize": url}).encode())
    with urlopen(request, timeout=SECONDS) as answer:
        landed = json.loads(answer.read())["landed"]
    with urlopen(landed, timeout=SECONDS) as page:
        page.read()


main(*sys.argv[1:])
