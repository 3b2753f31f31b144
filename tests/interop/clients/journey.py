"""Uses every feature of a session once, with any Python client; imports only the standard library.

A `Traveler` hides the different names of the clients. The site is `tests/interop/session_site`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

# A journey ends within this time; no test asserts how long it takes.
SECONDS = 150
# How often to check that no notification arrives any longer.
ROUNDS = 5
WATCHED = "site://board"


@dataclass
class Host:
    """The answers of a user and a model, and the notifications that a client received.

    `answers` are the user's, in order: the content of a form, or `None` for one who declines.
    """

    answers: list[Any] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    logged: list[list[Any]] = field(default_factory=list)
    updated: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    rearranged: asyncio.Event = field(default_factory=asyncio.Event)

    def answer(self, question: str) -> Any:
        """Record a question, and return the answer to it."""
        self.questions.append(question)
        return self.answers.pop(0)


class Traveler(Protocol):
    """A connected client."""

    async def introduce(self) -> dict[str, Any]:
        """Return the server's `version`, its `name` and the sorted names of its `capabilities`."""

    async def tools(self) -> list[str]:
        """Return the names of all tools."""

    async def call(self, name: str, arguments: Any, progress: list[float] | None = None) -> Any:
        """Return `text`, `structured` and `failed` of a tool's result; `code` of an error."""

    async def call_and_cancel(self, name: str, arguments: Any) -> None:
        """Cancel a call as soon as it has reported progress."""

    async def read(self, uri: str) -> str:
        """Return the text of a resource."""

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        """Return the text of a prompt's one message."""

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        """Return the suggestions for an argument of a prompt."""

    async def set_level(self, level: str) -> None:
        """Stop receiving messages that are less severe."""

    async def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource."""

    async def unsubscribe(self, uri: str) -> None:
        """Unsubscribe from changes of a resource."""

    async def ping(self) -> None:
        """Check that the server answers."""


Connect = Callable[[dict[str, Any], Host], AbstractAsyncContextManager[Traveler]]


async def journey(traveler: Traveler, host: Host, key: str) -> dict[str, Any]:
    """Use all features of a server, and return what the client saw."""
    seen = {
        **await traveler.introduce(),
        "tools": await traveler.tools(),
        "added": await traveler.call("add", {"first": 2, "second": 3}),
        "unknown": await traveler.call("subtract", {}),
        "board": await traveler.read(WATCHED),
        "letter": await traveler.prompt("letter", {"topic": "fog"}),
        "suggested": await traveler.complete("letter", "topic", "par"),
        "progress": [],
    }
    await traveler.ping()
    seen["counted"] = await traveler.call("count", {"to": 4}, seen["progress"])
    return {
        **seen,
        **await questions(traveler, host),
        **await logs(traveler, host),
        **await changes(traveler, host),
        **await cancellation(traveler, key),
    }


async def questions(traveler: Traveler, host: Host) -> dict[str, Any]:
    """Return what tools make of the answers of the user and the model."""
    host.answers = [{"value": "Ada"}]
    greeted = await traveler.call("greet", {})
    # Replaces the answer that is left if the user was not asked.
    host.answers = [None]
    declined = await traveler.call("greet", {})
    host.answers = [{}]
    agreed = await traveler.call("consent", {})
    return {
        "greeted": greeted,
        "declined": declined,
        "agreed": agreed,
        "summarized": await traveler.call("summarize", {"text": "Long."}),
        "folders": await traveler.call("folders", {}),
        "asked": host.questions,
    }


async def logs(traveler: Traveler, host: Host) -> dict[str, Any]:
    """Return what is logged before a level is set, and with two levels."""
    records = []
    for level in (None, "debug", "error"):
        host.logged.clear()
        if level is not None:
            await traveler.set_level(level)
        await traveler.call("narrate", {})
        records.append(list(host.logged))
    return dict(zip(("logged", "logged_at_debug", "logged_at_error"), records, strict=True))


async def changes(traveler: Traveler, host: Host) -> dict[str, Any]:
    """Return the notifications about changes, during a subscription and after its end."""
    await traveler.subscribe(WATCHED)
    await traveler.call("repaint", {})
    updated = await host.updated.get()
    await traveler.unsubscribe(WATCHED)
    for _ in range(ROUNDS):
        # Notifications under way still arrive. All changes travel on one stream, in their order.
        await rearrange(traveler, host)
        while not host.updated.empty():
            host.updated.get_nowait()
        await traveler.call("repaint", {})
        await rearrange(traveler, host)
        if host.updated.empty():
            break
    return {"updated": updated, "updated_later": host.updated.qsize()}


async def rearrange(traveler: Traveler, host: Host) -> None:
    """Change the list of tools, and wait for the notification."""
    host.rearranged.clear()
    await traveler.call("rearrange", {})
    await host.rearranged.wait()


async def cancellation(traveler: Traveler, key: str) -> dict[str, Any]:
    """Cancel a call, and return whether it stops; the session goes on."""
    await traveler.call_and_cancel("wait", {"mark": key})
    stopped = await traveler.call("has_stopped", {"mark": key})
    return {"stopped": stopped["text"]}


async def interruption(traveler: Traveler) -> dict[str, Any]:
    """Return what arrives of a call whose connection is lost, and of the next call."""
    progress: list[float] = []
    answered = await traveler.call("step_aside", {}, progress)
    added = await traveler.call("add", {"first": 1, "second": 1})
    return {"answered": answered, "progress": progress, "added": added}


async def visit(connect: Connect, key: str, target: dict[str, Any]) -> dict[str, Any]:
    """Return what a client sees at one target."""
    host = Host()
    try:
        async with asyncio.timeout(SECONDS), connect(target, host) as traveler:
            if target["kind"] == "interruption":
                return await interruption(traveler)
            return await journey(traveler, host, target["mark"])
    except BaseException as exc:
        exc.add_note(f"The way to {key}.")
        raise


async def travel(connect: Connect) -> None:
    """Read the targets, visit all of them, and print what was seen."""
    targets = json.load(sys.stdin)["targets"]
    seen = await asyncio.gather(*(visit(connect, key, target) for key, target in targets.items()))
    print(json.dumps(dict(zip(targets, seen, strict=True))))


def main(connect: Connect) -> None:
    """Run a script."""
    asyncio.run(travel(connect))
