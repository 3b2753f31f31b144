"""The commands that start a server, started as the page says."""

import json
import urllib.error
import urllib.request

import pytest

from tests.docs.fences import Fence, fences, pages
from tests.docs.project import Project
from tests.kit.drivers import headers_for, message

pytestmark = pytest.mark.outside

PROGRAMS = ("gunicorn", "uvicorn", "granian")
PAGE = fences(pages()["deploy"])
# The first command of each program, in the order of the page.
COMMANDS = {f.text.split()[0]: f for f in reversed(PAGE) if f.language == "sh"}
SETTINGS = """# mysite/settings.py
from tests.docs.settings import *
"""
WSGI = """# mysite/wsgi.py
import os

from django.core.wsgi import get_wsgi_application

os.environ["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
application = get_wsgi_application()
"""


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_server_starts_as_the_page_says_and_stops(program, tmp_path):
    asgi = next(fence for fence in PAGE if fence.file == "mysite/asgi.py")
    with Project(tmp_path, settings="mysite.settings") as project:
        for file in (SETTINGS, WSGI, asgi.text):
            project.do(Fence(language="python", text=file, line=0))
        project.do(COMMANDS[program])
        body = message("tools/list")
        request = urllib.request.Request(
            f"http://127.0.0.1:{project.port}/mcp",
            data=json.dumps(body).encode(),
            headers=headers_for(body, host=None),
        )
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=10)
