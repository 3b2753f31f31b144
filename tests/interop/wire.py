"""A client of 2026-07-28 written against the specification, and not with the package's own code.

It knows JSON, the envelope and `data:` lines, so that a mistake shared by the package's encoder
and decoder shows up here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Any, Self

import httpx

VERSION = "2026-07-28"
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
# No answer of the demo takes longer on a machine that is otherwise idle.
SECONDS = 90


class Wire:
    """A client of one endpoint with one token; every request stands alone.

    `capabilities` are the client's capabilities, which every request declares.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        capabilities: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(headers=headers, timeout=SECONDS, trust_env=False)
        self._url = url
        self._capabilities = dict(capabilities)
        self._ids = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.close()

    def post(self, method: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        """Send one request and return the HTTP response unchanged."""
        return self._http.post(self._url, **self._request(method, params or {}))

    def result(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request that must succeed, and return its result."""
        response = self.post(method, params)
        assert response.status_code == 200, response.text
        message = response.json()
        assert "error" not in message, message
        return dict(message["result"])

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool, and return its result, whether it succeeded or not."""
        return self.result("tools/call", {"name": name, "arguments": arguments})

    def call_again(
        self, questions: Mapping[str, Any], answer: Mapping[str, Any], name: str, **arguments: Any
    ) -> dict[str, Any]:
        """Call a tool again with this answer to each of its `questions`, and return its result."""
        return self.result("tools/call", retry(questions, answer, name, **arguments))

    def read_json(self, uri: str) -> Any:
        """Return the content of a resource that is one JSON document."""
        (contents,) = self.result("resources/read", {"uri": uri})["contents"]
        assert contents["mimeType"] == "application/json"
        return json.loads(contents["text"])

    @contextmanager
    def stream(self, method: str, params: Mapping[str, Any]) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield the messages of an event stream, as they arrive."""
        request = self._request(method, params)
        with self._http.stream("POST", self._url, **request) as response:
            content_type = response.headers["content-type"]
            assert content_type.startswith("text/event-stream"), content_type
            yield _messages(response)

    def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
        }
        if method in NAMED_BY:
            headers["Mcp-Name"] = params[NAMED_BY[method]]
        envelope = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": self._capabilities,
        }
        message = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": method,
            "params": {**params, "_meta": {**params.get("_meta", {}), **envelope}},
        }
        return {"headers": headers, "json": message}


def retry(
    questions: Mapping[str, Any], answer: Mapping[str, Any], name: str, **arguments: Any
) -> dict[str, Any]:
    """Return the parameters of a call that answers the `questions` of an earlier one."""
    return {
        "name": name,
        "arguments": arguments,
        "inputResponses": dict.fromkeys(questions["inputRequests"], answer),
        "requestState": questions["requestState"],
    }


def _messages(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))
