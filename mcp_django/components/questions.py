"""Client requests of components: elicitation, sampling and roots, and how answers are validated.

Elicitation asks the user with a form or a page to visit (MCP 2026-07-28, "Elicitation"), sampling
requests a message from the client's language model (2025-11-25 and 2026-07-28, "Sampling"), and
roots are the folders that the user works in (2025-11-25, "Roots"). Sampling and roots are
deprecated since 2026-07-28; they are still sent to clients that declare them.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias
from urllib.parse import urlsplit
from urllib.request import url2pathname

from django.conf import settings

from mcp_django.conf import is_loopback
from mcp_django.exceptions import ElicitationDeclined
from mcp_django.protocol.content import Audio, Block, Image, Message, Role, Text
from mcp_django.protocol.jsonrpc import encode
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.schema.elicitation import build_elicitation_form


class InvalidAnswer(Exception):
    """The user's answer is invalid and the user is asked again; the text explains the error."""


class IncompleteAnswer(InvalidAnswer):
    """The user accepted without completing the page; the question is asked again, without limit."""


class MalformedAnswer(Exception):
    """The answer does not have the form that the specification requires: an error of the client."""


class Question(ABC):
    """A request to the client or its user.

    ``key`` is the key of the question on the wire; without it a key is generated. Equal questions
    have equal digests, by which answers are matched to questions when the function runs again.
    """

    method: ClassVar[str]
    needs: str
    """The capability that the client must declare, as ``ctx.supports`` names it."""
    uses_database: bool = False
    """Whether validating an answer may query the database."""

    def __init__(self, *, key: str | None = None) -> None:
        if key is not None and not 0 < len(key) <= 128:
            raise ValueError(f"The key of a question is {key!r}; write 1 to 128 characters.")
        self.key = key

    @abstractmethod
    def to_params(self) -> dict[str, Any]:
        """Return the parameters of the request, in the form of the newest revision."""

    def with_error(self, problem: str) -> dict[str, Any]:
        """Return the parameters for asking again, with the problem of the previous answer."""
        return self.to_params()

    @property
    def is_settled(self) -> bool:
        """Whether the question needs no answer, since its condition is already met."""
        return False

    @abstractmethod
    def read_answer(self, answer: Mapping[str, Any]) -> Any:
        """Validate the client's answer and return its value.

        Raises:
            InvalidAnswer: the answer is invalid, and the user has to be asked again.
            MalformedAnswer: the answer does not have the required form.
            ElicitationDeclined: the user declined to answer.
        """

    @cached_property
    def digest(self) -> str:
        """A digest (128 bits) of the method and parameters, which identifies the question."""
        encoded = encode([self.method, self.to_params()])
        return hashlib.sha256(encoded).hexdigest()[:32]


ANSWERABLE: Mapping[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
}
"""The capabilities of a client where a person answers all requests; sampling without tools."""


# Elicitation --------------------------------------------------------------------------------------

# RFC 3986, appendix A. Other characters may be displayed to the user in one way and interpreted by
# the browser in another.
URL_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
# Users select values one by one; in a longer list each invalid entry would be reported.
MAX_SELECTED_VALUES = 1000
NOT_COMPLETED = "The page is not completed yet. Complete it, then come back and accept."


class Elicit(Question):
    """Ask the user to fill in a form.

    ``schema`` declares the form (``schema.elicitation`` lists the supported types); the answer is
    an instance of it.

    Raises:
        ImproperlyConfigured: elicitation forms do not support a field, or it requests a secret.
    """

    method = "elicitation/create"
    needs = "elicitation"

    def __init__(self, message: str, schema: Any = None, *, key: str | None = None) -> None:
        super().__init__(key=key)
        self.message = str(message)
        self._form = build_elicitation_form(schema)
        self.uses_database = self._form.uses_database

    def to_params(self) -> dict[str, Any]:
        """Return the message and the form's schema."""
        return self._params(self.message)

    def with_error(self, problem: str) -> dict[str, Any]:
        """Return the same form, with the problem before the message."""
        return self._params(f"Please correct this:\n{problem}\n\n{self.message}")

    def _params(self, message: str) -> dict[str, Any]:
        return {"mode": "form", "message": message, "requestedSchema": self._form.json_schema}

    def read_answer(self, answer: Mapping[str, Any]) -> Any:
        """Validate the answer and return the value of the form."""
        check_accepted(answer)
        content = answer.get("content")
        if content is None:
            content = {}
        # As a whole, before its members are validated.
        if not isinstance(content, Mapping):
            raise MalformedAnswer("content must be an object")
        lists = [value for value in content.values() if isinstance(value, list)]
        if any(len(value) > MAX_SELECTED_VALUES for value in lists):
            raise MalformedAnswer(f"content has a list of more than {MAX_SELECTED_VALUES} choices")
        try:
            return self._form.parse_answer(content)
        except InvalidArguments as exc:
            raise InvalidAnswer(str(exc)) from exc


class ElicitURL(Question):
    """Ask the user to visit a page, for data that must not pass through the client.

    Accepting means that the user agrees to open the page, not that it is completed: ``done``
    returns whether it is completed, and the question is asked again until ``done`` returns true.
    If it returns true before the question, the user is not asked.

    Raises:
        ValueError: the URL is not absolute, not HTTPS or contains credentials.
    """

    method = "elicitation/create"
    needs = "elicitation.url"

    def __init__(
        self,
        message: str,
        url: str,
        *,
        done: Callable[[], bool] | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(key=key)
        _check_page_url(url)
        self.message = str(message)
        self.url = url
        self._done = done
        self.uses_database = done is not None

    def to_params(self) -> dict[str, Any]:
        """Return the message and the URL."""
        return {"mode": "url", "message": self.message, "url": self.url}

    def with_error(self, problem: str) -> dict[str, Any]:
        """Return the same URL, with the problem before the message."""
        return {**self.to_params(), "message": f"{problem}\n\n{self.message}"}

    @property
    def is_settled(self) -> bool:
        """Whether the page is already completed, for example in an earlier call."""
        return self._done is not None and self._done()

    def read_answer(self, answer: Mapping[str, Any]) -> None:
        """Check that the user accepted and completed the page; return nothing."""
        check_accepted(answer)
        if self._done is not None and not self._done():
            raise IncompleteAnswer(NOT_COMPLETED)


def check_accepted(answer: Mapping[str, Any]) -> None:
    """Check that the action of an answer is ``accept``.

    Raises:
        ElicitationDeclined: the user declined or cancelled.
        MalformedAnswer: the action is invalid.
    """
    action = answer.get("action")
    if action in ("decline", "cancel"):  # a tuple, since the value may be unhashable
        raise ElicitationDeclined(action)
    if action != "accept":
        raise MalformedAnswer("action must be accept, decline or cancel")


def _check_page_url(url: str) -> None:
    """Check that users may be sent to a URL.

    Raises:
        ValueError: the URL is not absolute, not HTTPS or contains credentials.
    """
    no_page = (
        f"{url!r} is not an absolute URL; write https://…. Only ctx.elicit_url completes a path of "
        "the site, with BASE_URL or the host of the request."
    )
    if not URL_CHARACTERS.fullmatch(url):
        raise ValueError(no_page)
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError as exc:
        raise ValueError(no_page) from exc
    if parts.scheme not in {"https", "http"} or not parts.hostname or port == 0:
        raise ValueError(no_page)
    if "@" in parts.netloc:
        raise ValueError("The URL of the page contains credentials; remove them.")
    is_local = settings.DEBUG or is_loopback(parts.hostname)
    if parts.scheme == "http" and not is_local:
        raise ValueError(f"{url!r} is not encrypted; write an https:// URL.")


@dataclass(frozen=True, slots=True)
class Root:
    """A folder or file on the user's machine: information for the tool, not a permission."""

    uri: str
    name: str = ""

    @property
    def path(self) -> Path:
        """The path on the user's machine, which may not be the server's machine."""
        return Path(url2pathname(urlsplit(self.uri).path))


class ListRoots(Question):
    """Request the folders that the user works in; the answer is a list of ``Root``."""

    method = "roots/list"
    needs = "roots"

    def to_params(self) -> dict[str, Any]:
        """Return no parameters."""
        return {}

    def read_answer(self, answer: Mapping[str, Any]) -> list[Root]:
        """Validate the answer and return the roots in the client's order."""
        members = answer.get("roots")
        if not isinstance(members, list):
            raise MalformedAnswer("roots must be an array")
        roots = []
        for member in members:
            uri = member.get("uri") if isinstance(member, Mapping) else None
            if not isinstance(uri, str) or not uri.lower().startswith("file://"):
                raise MalformedAnswer("each root must have a uri that begins with file://")
            try:
                urlsplit(uri)
            except ValueError:
                raise MalformedAnswer("the uri of a root is not a valid URL") from None
            name = member.get("name")
            roots.append(Root(uri, name if isinstance(name, str) else ""))
        return roots


# Sampling -----------------------------------------------------------------------------------------

TOOL_CHOICES = ("auto", "required", "none")
REQUIRED_MEMBERS: Mapping[str, Mapping[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "tool_use": {"id": str, "name": str, "input": dict},
}
"""The required members of a block that a model may return, by type; not tool results."""
MODEL_PREFERENCES = ("costPriority", "speedPriority", "intelligencePriority")
_RESULTS_MISMATCH = (
    "The results of {} are required, but the message contains those of [{}]. After each message "
    "that uses tools, add a list with one ToolResultBlock for each use."
)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call that the model requests."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResultBlock:
    """The result of a ``ToolUse``, for the next sampling request."""

    tool_use_id: str
    content: str | Sequence[str | Block] = ()
    is_error: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Return the content block."""
        parts = [self.content] if isinstance(self.content, str) else self.content
        blocks = [Text(part) if isinstance(part, str) else part for part in parts]
        wire: dict[str, Any] = {
            "type": "tool_result",
            "toolUseId": self.tool_use_id,
            "content": [block.to_wire() for block in blocks],
        }
        return {**wire, "isError": True} if self.is_error else wire


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledMessage:
    """The model's response; pass it on in the messages of the next request to continue."""

    role: Role
    content: list[dict[str, Any]]
    """The content blocks, as received."""
    model: str
    stop_reason: str = ""
    """``endTurn``, ``maxTokens``, ``toolUse`` or another value of the client."""

    @property
    def text(self) -> str:
        """The text of all text blocks, joined by newlines."""
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")

    @property
    def tool_uses(self) -> list[ToolUse]:
        """The tool calls that the model requests, in its order."""
        uses = [block for block in self.content if block.get("type") == "tool_use"]
        return [ToolUse(block["id"], block["name"], block["input"]) for block in uses]

    def to_wire(self) -> dict[str, Any]:
        """Return the message for the next sampling request."""
        return {"role": self.role, "content": self.content}


SamplingInput: TypeAlias = str | Message | SampledMessage | Sequence[ToolResultBlock]


class Sample(Question):
    """Request a message from the client's language model; the answer is a ``SampledMessage``.

    ``messages`` is text, a ``Message``, an earlier ``SampledMessage``, the results of the tools it
    requested, or a list of these. ``max_tokens`` limits the answer. ``tools`` are dictionaries
    with ``name``, ``description`` and ``inputSchema``; ``tool_choice`` is ``auto``, ``required`` or
    ``none`` (write ``none`` in the last round of a loop).

    Raises:
        ValueError: a tool use in the messages has no result, or an option is out of range.
    """

    method = "sampling/createMessage"

    def __init__(
        self,
        messages: SamplingInput | Sequence[SamplingInput],
        *,
        max_tokens: int = 1000,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Iterable[str] = (),
        model_preferences: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tools: Iterable[Mapping[str, Any]] = (),
        tool_choice: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(key=key)
        if max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}; write at least 1.")
        if tool_choice is not None and tool_choice not in TOOL_CHOICES:
            raise ValueError(
                f"tool_choice is {tool_choice!r}; use one of {', '.join(TOOL_CHOICES)}."
            )
        self._max_tokens = max_tokens
        self._messages = _build_messages(messages)
        self._options = _SamplingOptions(
            systemPrompt=system_prompt,
            temperature=temperature,
            stopSequences=list(stop_sequences),
            modelPreferences=_check_preferences(model_preferences),
            metadata=dict(metadata) if metadata is not None else None,
            tools=[_check_tool(tool) for tool in tools],
            toolChoice={"mode": tool_choice} if tool_choice else None,
        )
        needs_tools = (
            self._options.tools
            or self._options.toolChoice
            or any(_block_members(message, "tool_use", "id") for message in self._messages)
        )
        self.needs = "sampling.tools" if needs_tools else "sampling"

    def to_params(self) -> dict[str, Any]:
        """Return the messages, the token limit and the options that are set."""
        return {
            "messages": self._messages,
            "maxTokens": self._max_tokens,
            **self._options.to_wire(),
        }

    def read_answer(self, answer: Mapping[str, Any]) -> SampledMessage:
        """Validate the answer and return it; a single block becomes a list of one block."""
        role, model, content = answer.get("role"), answer.get("model"), answer.get("content")
        if role not in ("user", "assistant"):  # a tuple, since the value may be unhashable
            raise MalformedAnswer("role must be user or assistant")
        if not isinstance(model, str):
            raise MalformedAnswer("model must be a string")
        blocks: list[Any] = content if isinstance(content, list) else [content]
        stop_reason = answer.get("stopReason")
        for block in blocks:
            # A later request may send the block to the client again, so unknown types are rejected.
            kind = block.get("type") if isinstance(block, Mapping) else None
            if not isinstance(kind, str) or kind not in REQUIRED_MEMBERS:
                raise MalformedAnswer(
                    f"content must be a block of type {', '.join(REQUIRED_MEMBERS)}, or an array "
                    "of such blocks"
                )
            for member, types in REQUIRED_MEMBERS[kind].items():
                if not isinstance(block.get(member), types):
                    raise MalformedAnswer(
                        f"{member} is missing or has the wrong type in content of type {kind}"
                    )
        return SampledMessage(
            role=role,
            content=[dict(block) for block in blocks],
            model=model,
            stop_reason=stop_reason if isinstance(stop_reason, str) else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SamplingOptions:
    """The optional parameters of a sampling request, left out unless they are set."""

    systemPrompt: str | None = None  # noqa: N815 - the specification's names
    temperature: float | None = None
    stopSequences: list[str] = field(default_factory=list)  # noqa: N815
    modelPreferences: dict[str, Any] | None = None  # noqa: N815
    metadata: dict[str, Any] | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)
    toolChoice: dict[str, str] | None = None  # noqa: N815

    def to_wire(self) -> dict[str, Any]:
        members = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in members.items() if value not in (None, [])}


def _build_messages(messages: SamplingInput | Sequence[SamplingInput]) -> list[dict[str, Any]]:
    is_single = isinstance(messages, str | Message | SampledMessage) or (
        bool(messages) and all(isinstance(block, ToolResultBlock) for block in messages)
    )
    inputs: Any = [messages] if is_single else messages
    wire_messages: list[dict[str, Any]] = []
    for message_input in inputs:
        if isinstance(message_input, str | Message):
            message = Message(message_input) if isinstance(message_input, str) else message_input
            if not isinstance(message.content, str | Text | Image | Audio):
                kind = type(message.content).__name__
                raise ValueError(
                    f"Sampling messages cannot contain a {kind}; use Text, Image or Audio."
                )
            wire_messages.append(message.to_wire())
        elif isinstance(message_input, SampledMessage):
            wire_messages.append(message_input.to_wire())
        else:
            results = [result.to_wire() for result in message_input]
            wire_messages.append({"role": "user", "content": results})
    if not wire_messages:
        raise ValueError("messages is empty; pass at least one message.")
    # After each message that uses tools comes one with the results of these uses and no others.
    used: list[str] = []
    for wire_message in wire_messages:
        result_ids = _block_members(wire_message, "tool_result", "toolUseId")
        if sorted(used) != sorted(result_ids):
            raise ValueError(
                _RESULTS_MISMATCH.format(", ".join(used) or "no tool", ", ".join(result_ids))
            )
        used = _block_members(wire_message, "tool_use", "id")
    if used:
        raise ValueError(_RESULTS_MISMATCH.format(", ".join(used), ""))
    return wire_messages


def _block_members(message: Mapping[str, Any], kind: str, member: str) -> list[str]:
    content = message["content"]
    blocks = content if isinstance(content, list) else [content]
    return [block[member] for block in blocks if block.get("type") == kind]


def _check_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    is_object = isinstance(schema, Mapping) and schema.get("type") == "object"
    if not is_object or not isinstance(tool.get("name"), str):
        raise ValueError("A tool needs a name and an inputSchema with type 'object'.")
    return dict(tool)


def _check_preferences(preferences: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if preferences is None:
        return None
    for name, value in preferences.items():
        if name == "hints":
            if not all(isinstance(hint, Mapping) for hint in value):
                raise ValueError(
                    "hints is invalid; write a list such as [{'name': 'part of a model name'}]."
                )
        elif name not in MODEL_PREFERENCES:
            raise ValueError(
                f"{name!r} is not a model preference; use hints, {', '.join(MODEL_PREFERENCES)}."
            )
        elif not 0 <= value <= 1:
            raise ValueError(f"{name} is {value}; write a number from 0 to 1.")
    return dict(preferences)
