"""Tools that do what a server over stdio must survive, with the example site and the stage."""

# ruff: noqa: T201 - what is printed is what is looked for

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from django.urls import include, path

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import AllowAny, BasePermission
from mcp_django.auth.principal import Principal

print("printed by the URLconf")

noisy = MCPServer("noisy", permission=AllowAny)
cracked = MCPServer("cracked", permission=AllowAny)
urlpatterns = [path("noisy", noisy.urls), path("", include("tests.transports.urls"))]


class Broken(BasePermission):
    """A permission with a bug."""

    def has_permission(self, principal: Principal) -> bool:
        raise RuntimeError("secret detail")


@cracked.tool(permission=Broken)
def broken() -> str:
    """Guarded by a bug."""
    return "never"


@cracked.tool
def whole() -> str:
    """Guarded by nothing."""
    return "whole"


@noisy.tool
def chat() -> str:
    """Print in every way there is."""
    print("printed by a tool")
    sys.stdout.write("written by a tool\n")
    sys.__stdout__.write("written to the first standard output\n")
    sys.__stdout__.flush()
    os.write(1, b"written to the descriptor\n")
    subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
    os.system("echo printed by a shell")
    logging.getLogger("tests").error("logged by a tool")
    return "quiet"


@noisy.tool
def mutter() -> str:
    """Print a line and leave it at that."""
    print("muttered by a tool")
    return "quiet"


@noisy.tool
def read_input() -> list[str]:
    """Read what is on standard input, as a child that asks for a password does."""
    child = subprocess.run(["cat"], capture_output=True, text=True, check=True, timeout=5)
    return [sys.stdin.read(), child.stdout]


@noisy.tool
def repeat(text: str, times: int = 1) -> str:
    """Give back the text, many times over."""
    return text * times


@noisy.tool
async def block() -> str:
    """Block the event loop for longer than any client waits."""
    print("blocking", flush=True)
    time.sleep(60)  # noqa: ASYNC251 - the mistake that is meant
    return "awake"


@noisy.tool
def sleep() -> str:
    """Sleep in a thread, deaf to everything, for longer than any client waits."""
    print("sleeping", flush=True)
    time.sleep(60)
    return "awake"


@noisy.tool
async def sleep_elsewhere() -> str:
    """Sleep in a thread that asyncio waits for at its end."""
    print("sleeping", flush=True)
    await asyncio.to_thread(time.sleep, 60)
    return "awake"


@noisy.tool
async def refuse_to_end() -> str:
    """Ignore being cancelled."""
    print("staying", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("staying on", flush=True)


@noisy.tool
async def tidy_up() -> str:
    """Notice the end, and take a moment to tidy up."""
    print("begun", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.01)
        print("tidied up", flush=True)
    return "slept"


@noisy.tool
def whoami(ctx: Context) -> dict[str, Any]:
    """Say who is calling, and that there is no request."""
    return {"user": ctx.user.get_username(), "request": ctx.request is not None}


@noisy.tool
def change(kind: str) -> str:
    """Announce a change."""
    noisy.notify_list_changed(kind)
    return kind


@noisy.tool
def count_threads() -> int:
    """Count the threads of the process."""
    return threading.active_count()


@noisy.resource("noisy://sound", subscribe=True)
def sound() -> str:
    """What is heard."""
    return "noise"


@noisy.prompt
def shout(what: str) -> str:
    """Shout something."""
    return what.upper()


@noisy.completion(shout, "what")
def shouts(value: str) -> list[str]:
    """Suggest what to shout."""
    return [f"{value}!", f"{value}?"]


@dataclass
class Volume:
    """How loud."""

    level: int
    reason: str = "none"


@noisy.tool
def turn_up(ctx: Context) -> str:
    """Ask how loud, then say it."""
    volume = ctx.elicit("How loud?", Volume)
    return f"{volume.level} ({volume.reason})"
