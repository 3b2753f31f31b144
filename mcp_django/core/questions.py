"""What a component may ask its client (elicitation, sampling, roots), and what an answer becomes.

Elicitation asks the user by a form or a page to visit (MCP 2026-07-28, "Elicitation"), sampling
asks the client's language model (2025-11-25 and 2026-07-28, "Sampling"), and roots are the folders
that the user works in (2025-11-25, "Roots"). The last two are deprecated since 2026-07-28, and
still asked as long as clients declare them.
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

from mcp_django.exceptions import ElicitationDeclined
from mcp_django.protocol.content import Audio, Block, Image, Message, Role, Text
from mcp_django.protocol.jsonrpc import encode
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.schema.elicitation import elicitation_form

# The base class of questions ----------------------------------------------------------------------


class UnfitAnswer(Exception):
    """The answer came from the user and has to be corrected by the user; the text says how."""


class Unfinished(UnfitAnswer):
    """The user agreed and is not done; nobody is at fault, so it is asked as often as it takes."""


class MalformedAnswer(Exception):
    """The answer is no answer to such a question: the client's fault, not the user's."""


class Question(ABC):
    """One question to the client or its user.

    ``key`` is the question's name on the wire; without one it gets a name of its own. Equal
    questions have equal digests, which is how an answer is matched to its question again.
    """

    method: ClassVar[str]
    needs: str
    """The capability that the client has to declare, as ``ctx.supports`` names it."""
    uses_database: bool = False
    """Whether reading an answer may query."""

    def __init__(self, *, key: str | None = None) -> None:
        if key is not None and not 0 < len(key) <= 128:
            raise ValueError(f"key={key!r}; a question's key has 1 to 128 characters.")
        self.key = key

    @abstractmethod
    def to_params(self) -> dict[str, Any]:
        """The parameters of the request, in the richest wire shape."""

    def corrected(self, problem: str) -> dict[str, Any]:
        """The parameters when it is asked again, because of this problem with the answer."""
        return self.to_params()

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to ask, although nobody has answered."""
        return False

    @abstractmethod
    def read(self, answer: Mapping[str, Any]) -> Any:
        """The value that the client's answer stands for.

        Raises:
            UnfitAnswer: the user has to be asked again.
            MalformedAnswer: it is no answer at all.
            ElicitationDeclined: the user does not want to answer.
        """

    @cached_property
    def digest(self) -> str:
        """What tells this question from every other: 128 bits of its method and parameters."""
        asked = encode([self.method, self.to_params()])
        return hashlib.sha256(asked).hexdigest()[:32]


# Elicitation --------------------------------------------------------------------------------------

# RFC 3986, appendix A. What else is in an address is shown to the user in one way and read by his
# browser in another.
URL_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# A person ticks boxes; each wrong entry of a longer list would be explained one by one.
MAX_CHOSEN = 1000
NOT_YET = "This is not finished yet. Come back once you have done it on the page."


class Elicit(Question):
    """Ask the user to fill in a form.

    ``schema`` declares it (schema.elicitation says by what); the answer is an instance of it.

    Raises:
        ImproperlyConfigured: no host could show such a form, or it asks for a secret (ASK-15).
    """

    method = "elicitation/create"
    needs = "elicitation"

    def __init__(self, message: str, schema: Any = None, *, key: str | None = None) -> None:
        super().__init__(key=key)
        self.message = str(message)
        self._form = elicitation_form(schema)
        self.uses_database = self._form.uses_database

    def to_params(self) -> dict[str, Any]:
        """Message and form."""
        return self._params(self.message)

    def corrected(self, problem: str) -> dict[str, Any]:
        """The same form, with what has to be corrected before the message."""
        return self._params(f"Please correct this:\n{problem}\n\n{self.message}")

    def _params(self, message: str) -> dict[str, Any]:
        return {"mode": "form", "message": message, "requestedSchema": self._form.json_schema}

    def read(self, answer: Mapping[str, Any]) -> Any:
        """The value of the form."""
        check_accepted(answer)
        content = answer.get("content")
        if content is None:
            content = {}
        _check_content(content)
        try:
            return self._form.read(content)
        except InvalidArguments as exc:
            raise UnfitAnswer(str(exc)) from exc


class ElicitURL(Question):
    """Send the user to a page, for what must not pass through the client.

    To accept means to be willing to go there, not to have been there: ``done`` tells whether the
    page was completed, and until it does the question is asked again. Where it is true beforehand,
    nobody is asked.

    Raises:
        ValueError: the URL is not absolute, not HTTPS or carries credentials (ASK-16).
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
        _check_page(url)
        self.message = str(message)
        self.url = url
        self._done = done
        self.uses_database = done is not None

    def to_params(self) -> dict[str, Any]:
        """Message and address."""
        return {"mode": "url", "message": self.message, "url": self.url}

    def corrected(self, problem: str) -> dict[str, Any]:
        """The same address; the message says that it is not finished."""
        return {**self.to_params(), "message": f"{problem}\n\n{self.message}"}

    @property
    def is_settled(self) -> bool:
        """Whether the page was completed already, in an earlier call for example."""
        return self._done is not None and self._done()

    def read(self, answer: Mapping[str, Any]) -> None:
        """Nothing: what was entered on the page is the page's own affair."""
        check_accepted(answer)
        if self._done is not None and not self._done():
            raise Unfinished(NOT_YET)


def check_accepted(answer: Mapping[str, Any]) -> None:
    """Tell a yes from everything else.

    Raises:
        ElicitationDeclined: it is a no.
        MalformedAnswer: it is nothing of the kind.
    """
    action = answer.get("action")
    if action in ("decline", "cancel"):  # an unhashable value is compared, too
        raise ElicitationDeclined(action)
    if action != "accept":
        raise MalformedAnswer("action must be accept, decline or cancel")


def _check_content(content: Any) -> None:
    """Refuse what no form can hold, before each member is looked at.

    Raises:
        MalformedAnswer: it is no object, or has a list that nobody can have chosen.
    """
    if not isinstance(content, Mapping):
        raise MalformedAnswer("content must be an object")
    if any(isinstance(value, list) and len(value) > MAX_CHOSEN for value in content.values()):
        raise MalformedAnswer(f"content has a list of more than {MAX_CHOSEN} choices")


def _check_page(url: str) -> None:
    """Refuse an address that no user should be sent to.

    Raises:
        ValueError: saying which rule it breaks.
    """
    no_page = (
        f"{url!r} is no page; write https://…. Only ctx.elicit_url completes a path of the site, "
        "with BASE_URL or the address of the request."
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
        raise ValueError("The address of the page carries credentials; the page has to ask.")
    is_local = settings.DEBUG or parts.hostname in LOOPBACK
    if parts.scheme == "http" and not is_local:
        raise ValueError(f"{url!r} is not encrypted; users are sent to https:// only.")


# Roots --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Root:
    """A folder or file on the user's machine: guidance for the tool, not a permission."""

    uri: str
    name: str = ""

    @property
    def path(self) -> Path:
        """Where it is, on a machine that may not be this one."""
        return Path(url2pathname(urlsplit(self.uri).path))


class ListRoots(Question):
    """Ask for the folders that the user works in; the answer is a list of ``Root``."""

    method = "roots/list"
    needs = "roots"

    def to_params(self) -> dict[str, Any]:
        """There is nothing to say."""
        return {}

    def read(self, answer: Mapping[str, Any]) -> list[Root]:
        """The roots in the client's order."""
        roots = answer.get("roots")
        if not isinstance(roots, list):
            raise MalformedAnswer("roots must be an array")
        return [_root(one) for one in roots]


def _root(described: Any) -> Root:
    uri = described.get("uri") if isinstance(described, Mapping) else None
    if not isinstance(uri, str) or not uri.startswith("file://"):
        raise MalformedAnswer("each root has a uri that begins with file://")
    try:
        urlsplit(uri)
    except ValueError:
        raise MalformedAnswer("a root has a uri that cannot be read") from None
    name = described.get("name")
    return Root(uri, name if isinstance(name, str) else "")


# Sampling -----------------------------------------------------------------------------------------

TOOL_CHOICES = ("auto", "required", "none")
MEMBERS: Mapping[str, Mapping[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "tool_use": {"id": str, "name": str, "input": dict},
}
"""What a model says, by the type of the block; it gives no tool results."""
PREFERENCES = ("costPriority", "speedPriority", "intelligencePriority")
_MISMATCH = (
    "The model asked for the results of {}, and is given [{}]; after each message that uses tools "
    "comes a list with one ToolResultBlock for each use."
)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool that the model wants to have called."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResultBlock:
    """What the tool of a ``ToolUse`` gave, for the next question to the model."""

    tool_use_id: str
    content: str | Sequence[str | Block] = ()
    is_error: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Return the content block."""
        many = [self.content] if isinstance(self.content, str) else self.content
        blocks = [Text(one) if isinstance(one, str) else one for one in many]
        wire: dict[str, Any] = {
            "type": "tool_result",
            "toolUseId": self.tool_use_id,
            "content": [block.to_wire() for block in blocks],
        }
        return {**wire, "isError": True} if self.is_error else wire


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledMessage:
    """What the model said; give it back among the messages to go on from there."""

    role: Role
    content: list[dict[str, Any]]
    """Its blocks as they came."""
    model: str
    stop_reason: str = ""
    """``endTurn``, ``maxTokens``, ``toolUse`` or whatever the client says."""

    @property
    def text(self) -> str:
        """All text, one block under the other."""
        return "\n".join(one["text"] for one in self.content if one.get("type") == "text")

    @property
    def tool_uses(self) -> list[ToolUse]:
        """The tools that the model wants to have called, in its order."""
        uses = [one for one in self.content if one.get("type") == "tool_use"]
        return [ToolUse(one["id"], one["name"], one["input"]) for one in uses]

    def to_wire(self) -> dict[str, Any]:
        """Return the message as part of a further question."""
        return {"role": self.role, "content": self.content}


Said: TypeAlias = str | Message | SampledMessage | Sequence[ToolResultBlock]


class Sample(Question):
    """Ask the client's language model; the answer is a ``SampledMessage``.

    ``messages`` is text, a ``Message``, an earlier ``SampledMessage``, the results of the tools it
    asked for, or a list of all these. ``max_tokens`` bounds the answer. ``tools`` are descriptions
    with ``name``, ``description`` and ``inputSchema``; ``tool_choice`` is ``auto``, ``required`` or
    ``none`` (say ``none`` in the last round of a loop).

    Raises:
        ValueError: the messages leave a tool use without its result (ASK-9), or an option is out
            of bounds.
    """

    method = "sampling/createMessage"

    def __init__(
        self,
        messages: Said | Sequence[Said],
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
            raise ValueError(f"max_tokens={max_tokens}; an answer has one token at least.")
        if tool_choice is not None and tool_choice not in TOOL_CHOICES:
            raise ValueError(f"tool_choice={tool_choice!r}; use one of {', '.join(TOOL_CHOICES)}.")
        self._max_tokens = max_tokens
        self._messages = _conversation(messages)
        self._options = _Options(
            systemPrompt=system_prompt,
            temperature=temperature,
            stopSequences=list(stop_sequences),
            modelPreferences=_preferences(model_preferences),
            metadata=dict(metadata) if metadata is not None else None,
            tools=[_offered(one) for one in tools],
            toolChoice={"mode": tool_choice} if tool_choice else None,
        )
        has_tools = (
            self._options.tools or self._options.toolChoice or _mentions_tools(self._messages)
        )
        self.needs = "sampling.tools" if has_tools else "sampling"

    def to_params(self) -> dict[str, Any]:
        """Messages, limit, and what else was said."""
        return {
            "messages": self._messages,
            "maxTokens": self._max_tokens,
            **self._options.to_wire(),
        }

    def read(self, answer: Mapping[str, Any]) -> SampledMessage:
        """What the model said; one block and a list of blocks are the same here (ASK-10)."""
        role, model, content = answer.get("role"), answer.get("model"), answer.get("content")
        if role not in ("user", "assistant"):  # an unhashable value is compared, too
            raise MalformedAnswer("role must be user or assistant")
        if not isinstance(model, str):
            raise MalformedAnswer("model must be a string")
        blocks = content if isinstance(content, list) else [content]
        stop_reason = answer.get("stopReason")
        return SampledMessage(
            role=role,
            content=[_checked(block) for block in blocks],
            model=model,
            stop_reason=stop_reason if isinstance(stop_reason, str) else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The parameters of a sampling request that are only there when they are set."""

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


def _checked(block: Any) -> dict[str, Any]:
    """A block of an answer, with the members that its type has to have.

    It may go back to the client within a later question, so what is not known is not kept.
    """
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str) or kind not in MEMBERS:
        raise MalformedAnswer(
            f"content must be a block of the type {', '.join(MEMBERS)}, or an array of them"
        )
    for member, types in MEMBERS[kind].items():
        if not isinstance(block.get(member), types):
            raise MalformedAnswer(f"content of the type {kind} has a proper {member}")
    return dict(block)


def _conversation(messages: Said | Sequence[Said]) -> list[dict[str, Any]]:
    many = [messages] if _is_one(messages) else messages
    said = [_said(one) for one in many]  # type: ignore[union-attr]
    if not said:
        raise ValueError("There is no message to answer; give one at least.")
    _check_tool_results(said)
    return said


def _is_one(messages: Any) -> bool:
    if isinstance(messages, str | Message | SampledMessage):
        return True
    return bool(messages) and all(isinstance(one, ToolResultBlock) for one in messages)


def _said(one: Any) -> dict[str, Any]:
    if isinstance(one, str | Message):
        message = Message(one) if isinstance(one, str) else one
        if not isinstance(message.content, str | Text | Image | Audio):
            kind = type(message.content).__name__
            raise ValueError(f"A model cannot be shown a {kind}; use Text, Image or Audio.")
        return message.to_wire()
    if isinstance(one, SampledMessage):
        return one.to_wire()
    return {"role": "user", "content": [result.to_wire() for result in one]}


def _check_tool_results(said: Sequence[Mapping[str, Any]]) -> None:
    """Each use of a tool is followed at once by its result, and by nothing else (ASK-9)."""
    used: list[str] = []
    for message in said:
        given = _members(message, "tool_result", "toolUseId")
        if sorted(used) != sorted(given):
            raise ValueError(_MISMATCH.format(", ".join(used) or "no tool", ", ".join(given)))
        used = _members(message, "tool_use", "id")
    if used:
        raise ValueError(_MISMATCH.format(", ".join(used), ""))


def _members(message: Mapping[str, Any], kind: str, member: str) -> list[str]:
    content = message["content"]
    blocks = content if isinstance(content, list) else [content]
    return [block[member] for block in blocks if block.get("type") == kind]


def _mentions_tools(said: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the conversation holds blocks that only clients with tools know."""
    return any(_members(one, "tool_use", "id") for one in said)


def _offered(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    is_object = isinstance(schema, Mapping) and schema.get("type") == "object"
    if not is_object or not isinstance(tool.get("name"), str):
        raise ValueError("A tool has a name and an inputSchema of the type object.")
    return dict(tool)


def _preferences(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if given is None:
        return None
    for name, value in given.items():
        if name == "hints":
            if not all(isinstance(hint, Mapping) for hint in value):
                raise ValueError("hints are written as [{'name': 'a part of its name'}].")
        elif name not in PREFERENCES:
            raise ValueError(f"{name} is no preference; use hints, {', '.join(PREFERENCES)}.")
        elif not 0 <= value <= 1:
            raise ValueError(f"{name}={value}; a priority is a number from 0 to 1.")
    return dict(given)
