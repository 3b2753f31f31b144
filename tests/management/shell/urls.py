"""One open server whose tools print what is hard to print, and fail."""

from __future__ import annotations

import sys
import time

from django.contrib.auth import get_user_model
from django.urls import path

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny

shell = MCPServer("shell", permission=AllowAny)
urlpatterns = [path("mcp", shell.urls)]


@shell.tool
def emoji() -> str:
    """Say what ASCII cannot."""
    return "é 😀"


@shell.tool
def lines() -> str:
    """Say more than a pipe holds."""
    return "\n".join(["a line of text"] * 20_000)


@shell.tool
def users() -> int:
    """Count the users."""
    return get_user_model().objects.count()


@shell.tool
def bug() -> str:
    """Fail."""
    raise LookupError("the shelf is empty")


@shell.tool
def wait() -> str:
    """Say that it runs, and go on for long."""
    sys.stdout.write("running\n")
    sys.stdout.flush()
    time.sleep(120)
    return "never"
