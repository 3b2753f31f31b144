"""The official Python client, connected to a server in another process, and its host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import httpx2
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
)

REVISION = "2026-07-28"
SECONDS = 90

Statuses = list[tuple[int, str | None]]
Visit: TypeAlias = Callable[[ElicitRequestParams], Awaitable[Any]]


@asynccontextmanager
async def connected(
    url: str, token: str | None = None, *, statuses: Statuses | None = None, **options: Any
) -> AsyncIterator[Client]:
    """Yield a connected client; one timeout limits the whole conversation.

    `statuses` collects the status and the challenge of every HTTP response.
    """

    async def note(response: httpx2.Response) -> None:
        if statuses is not None:
            statuses.append((response.status_code, response.headers.get("www-authenticate")))

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        asyncio.timeout(SECONDS),
        httpx2.AsyncClient(
            headers=headers, timeout=SECONDS, trust_env=False, event_hooks={"response": [note]}
        ) as http,
        Client(streamable_http_client(url, http_client=http), **options) as client,
    ):
        yield client


class Host:
    """The answers of a host for its user and its model, in order, and the questions that it got.

    An answer of the user may be a function, which is called with the question.
    """

    def __init__(self, answers: Iterable[Any] = (), *, samples: Iterable[Any] = ()) -> None:
        self._answers = iter(answers)
        self._said = iter(samples)
        self.keys: list[str] = []
        self.questions: list[Any] = []

    @property
    def callbacks(self) -> dict[str, Any]:
        """The options of a client that can answer every client request."""
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.list_roots,
        }

    @property
    def messages(self) -> list[str]:
        """The messages that the user has read."""
        return [question.message for question in self.questions if hasattr(question, "message")]

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> Any:
        self._note(context, params)
        answer: Any = next(self._answers)
        return await answer(params) if callable(answer) else answer

    async def sample(self, context: ClientRequestContext, params: Any) -> Any:
        self._note(context, params)
        return next(self._said)

    async def list_roots(self, context: ClientRequestContext) -> ListRootsResult:
        self._note(context, None)
        return ListRootsResult(roots=[Root(uri="file:///home/ada/my%20papers", name="Papers")])

    def _note(self, context: ClientRequestContext, params: Any) -> None:
        self.keys.append(str(context.request_id))
        self.questions.append(params)


def accept(**content: Any) -> ElicitResult:
    """Return the answer of a form that is filled in."""
    return ElicitResult(action="accept", content=content)


DECLINE = ElicitResult(action="decline")
CANCEL = ElicitResult(action="cancel")


def says(words: str) -> CreateMessageResult:
    """Return a complete message of the model."""
    return CreateMessageResult(
        role="assistant",
        content=TextContent(type="text", text=words),
        model="small",
        stop_reason="endTurn",
    )


async def open_page(params: ElicitRequestParams) -> ElicitResult:
    """Go to the page, as the user's browser does."""
    async with httpx2.AsyncClient(timeout=SECONDS, trust_env=False) as browser:
        (await browser.get(params.url)).raise_for_status()
    return ElicitResult(action="accept")


async def call(
    url: str, host: Host, name: str, arguments: dict[str, Any] | None = None, **options: Any
) -> Any:
    """Return the result of a tool for a client with this host."""
    given = host.callbacks | {"mode": REVISION} | options
    async with connected(url, **given) as client:
        return await client.call_tool(name, arguments or {})


def text(result: Any) -> str:
    """Return the text of the only block of a result."""
    (block,) = result.content
    return str(block.text)
