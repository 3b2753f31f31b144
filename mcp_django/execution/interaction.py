"""``Interaction``: the client requests of one call (elicitation, sampling, roots), in rounds.

In each round the component runs from its beginning. Its questions are numbered in the order in
which it asks them; an answer is used for the question with the same number and the same digest.
If a question has changed, the answers after it belong to other questions, so those are asked again
too. See MCP 2026-07-28, "Multi round-trip requests".

The server stores nothing between rounds: the client sends ``requestState`` back. It is signed,
dated and bound to its request, but not encrypted.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, NoReturn

import msgspec
from django.core import signing

from mcp_django.auth.pages import new_interaction
from mcp_django.components.component import Component
from mcp_django.components.context import ClientPort
from mcp_django.components.questions import (
    IncompleteAnswer,
    InvalidAnswer,
    MalformedAnswer,
    Question,
)
from mcp_django.components.tool import Tool
from mcp_django.conf import get_settings
from mcp_django.exceptions import (
    ElicitationDeclined,
    ElicitationUnavailable,
    InputRequired,
    InvalidParams,
    MissingCapability,
    ToolError,
)
from mcp_django.execution.call import (
    Call,
    Result,
    RetryParams,
)
from mcp_django.execution.results import tool_failure, url_elicitation_error
from mcp_django.protocol.errors import capabilities_declaration, declares_capability
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.projection import find_inexpressible
from mcp_django.protocol.text import clip
from mcp_django.schema.values import MAX_DEPTH, is_too_deep, sorted_members
from mcp_django.tenants import current_tenant

# Users correct a form a few times; clients stop after ten rounds, with a less helpful error.
MAX_CORRECTIONS = 5
# The maximum number of questions in one round; hosts show them one after the other.
MAX_QUESTIONS = 32


def may_ask(component: Component) -> bool:
    """Return whether a call of the component may ask the client something."""
    return (
        component.function.context_parameter is not None
        or bool(getattr(component, "approval", ""))
        or bool(getattr(component, "task", ""))
    )


def open_interaction(call: Call) -> None:
    """Open the interaction of a call, and check the state that a continued call sent back.

    Raises:
        InvalidParams: the state is invalid, expired, or of another call.
        MissingCapability: the client lacks a capability that the component needs.
    """
    assert call.params is not None
    try:
        call.interaction = Interaction(call, call.component, call.raw_arguments, call.params)
    except MissingCapability as exc:
        call.result = capability_result(call, exc)


def capability_result(call: Call, exc: MissingCapability) -> Result:
    """Return the result for a client that lacks a capability that a tool needs.

    Raises:
        MissingCapability: the component is not a tool, or the revision has an error for this.
    """
    if not isinstance(call.component, Tool):
        raise exc
    call.record.preset("refused", type(exc).__name__)
    return tool_failure(call.component, call.revision, exc)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A placeholder for a missing answer; ``params`` are the parameters of the request for it."""

    params: dict[str, Any]


def check_error_answer(method: str, answer: Mapping[str, Any]) -> None:
    """Check that the client did not answer with an error, as handshake revisions allow.

    Raises:
        ToolError: the answer is an error.
    """
    error = answer.get("error")
    if isinstance(error, dict) and isinstance(error.get("code"), int):
        raise ToolError(f"{method} was refused: {str(error.get('message'))[:200]}")


def decode_answer(key: str, raw: msgspec.Raw) -> dict[str, Any]:
    """Return one answer of ``inputResponses`` as plain JSON values, when a question needs it.

    Answers under other keys are never decoded, so they cost no more than their bytes.

    Raises:
        InvalidParams: the answer cannot be decoded, is not an object, or is nested too deeply.
    """
    place, text = f"params.inputResponses[{clip(key)!r}]", bytes(raw)
    try:
        answer = msgspec.json.decode(text)
    except msgspec.MsgspecError as exc:
        raise InvalidParams(f"{place} cannot be read: {clip(exc)}.") from None
    except RecursionError:
        raise InvalidParams(f"{place} is nested too deep.") from None
    if is_too_deep(text, answer):
        raise InvalidParams(f"{place} is nested deeper than {MAX_DEPTH} levels.")
    if not isinstance(answer, dict):
        raise InvalidParams(f"{place} must be an object.")
    return answer


class Interaction:
    """The answers that a call has so far, and the questions that it asks now."""

    def __init__(
        self, call: Call, component: Component, arguments: bytes, retry_params: RetryParams
    ) -> None:
        # The call is not stored, since it refers to the interaction: a reference cycle would delay
        # the record of an abandoned call.
        self._client = _ClientCapabilities(call, component)
        self._envelope, self._principal = call.envelope, call.principal
        self._revision = call.revision
        self._names = _names_of(call, component)
        if not self._revision.stateless:
            # These members have no meaning in a session, where answers are separate messages.
            retry_params = RetryParams()
        self._arguments = arguments
        self._responses = retry_params.input_responses or {}
        self._lock = threading.Lock()
        self._position = self._approval_boundary = 0
        self._requests: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, OpenQuestion] = {}
        self._state: RequestState | None = None
        self._is_first, self._starts_task = retry_params.request_state is None, False
        if retry_params.request_state is not None:
            self._state = _read_state(retry_params.request_state, subject=self._subject)
        self._answered = dict(self._state.answered) if self._state else {}
        self._port: _ReplayPort | None = None
        self._client.require_capabilities(component.needs)

    @property
    def interaction_id(self) -> str:
        """The id of the interaction, the same in every round."""
        return self._current_state.interaction_id

    @property
    def is_continued(self) -> bool:
        """Whether the request continues an earlier one, whose signed state it contains."""
        return not self._is_first

    def supports(self, name: str) -> bool:
        """Return whether the client declares this capability and can be reached."""
        return self._client.supports(name)

    def ask(self, questions: Sequence[Question]) -> tuple[Any, ...]:
        """Return the answers to questions, in order.

        Raises:
            InputRequired: one of the questions has no answer yet.
            MissingCapability: the client did not declare the capability that a question needs.
            ElicitationDeclined: the user declined to answer.
            InvalidParams: an answer is malformed.
        """
        with self._lock:
            first, self._position = self._position, self._position + len(questions)
        numbered = list(enumerate(questions, start=first))
        responses = {n: self._find_answer(n, question) for n, question in numbered}
        settled = {n for n, question in numbered if responses[n] is None and question.is_settled}
        unsettled = [question for n, question in numbered if n not in settled]
        self._client.require_capabilities([question.needs for question in unsettled])
        self._client.check_expressible(unsettled)
        # If the user declined one question, this raises before any other is sent.
        answers = [
            None if n in settled else self._answer(n, question, responses[n])
            for n, question in numbered
        ]
        for n, answer in enumerate(answers):
            if isinstance(answer, Unanswered):
                question = questions[n]
                key = _question_key(first + n, question)
                if key in self._requests:
                    raise ValueError(f"Two questions have the key {key!r}; give each its own.")
                if len(self._requests) >= MAX_QUESTIONS:
                    raise ValueError(
                        f"More than {MAX_QUESTIONS} questions in one round; ask fewer."
                    )
                self._requests[key] = {"method": question.method, "params": answer.params}
                self._asked[key] = OpenQuestion(first + n, question.digest)
        if self._requests:
            if self._revision.stateless:
                # Sign now, so that a state that is too large fails in the function.
                self._sign()
            raise InputRequired
        return tuple(answers)

    def mark_approval_boundary(self) -> None:
        """Mark the questions so far as those of the approval guard, which a task does not ask."""
        self._approval_boundary = self._position

    def start_task(self) -> NoReturn:
        """Leave the function, which continues as a task.

        Raises:
            InputRequired: always.
        """
        self._starts_task = True
        raise InputRequired

    def _answer(self, position: int, question: Question, answer: Mapping[str, Any] | None) -> Any:
        if answer is None:
            return Unanswered(question.to_params())
        try:
            check_error_answer(question.method, answer)
            value = question.read_answer(answer)
        except (ElicitationDeclined, ToolError):
            # A component that handles the exception must not ask the user again.
            self._answered[position] = AnsweredQuestion(question.digest, answer)
            raise
        except MalformedAnswer as exc:
            return self._handle_malformed(question, exc)
        except InvalidAnswer as exc:
            # The answer may have been valid in an earlier round.
            self._answered.pop(position, None)
            if not isinstance(exc, IncompleteAnswer):
                self._count_correction(str(exc))
            return Unanswered(question.with_error(str(exc)))
        self._answered[position] = AnsweredQuestion(question.digest, answer)
        return value

    def _handle_malformed(self, question: Question, exc: MalformedAnswer) -> Any:
        place = "params.inputResponses" if self._revision.stateless else "result"
        problem = f"{place}: not a valid answer to {question.method}: {exc}."
        raise InvalidParams(problem) from exc

    def _find_answer(self, position: int, question: Question) -> Mapping[str, Any] | None:
        recorded = self._answered.get(position)
        if recorded is not None and recorded.digest == question.digest:
            return recorded.answer
        open_questions = self._current_state.asked.values()
        digests = {other.digest for other in open_questions if other.position == position}
        if recorded is not None or not digests <= {question.digest}:
            # Another question, answered or open, had this number before.
            self._drop_from(position)
        for key in self._keys(position, question):
            if key in self._responses:
                answer = decode_answer(key, self._responses[key])
                return answer if self._revision.stateless else _with_objects(question, answer)
        return None

    def _keys(self, position: int, question: Question) -> list[str]:
        """Return the keys under which the client may have answered this question."""
        if self._is_first:
            # The client may answer in advance a question whose key it knows.
            return [_question_key(position, question)]
        open_question = OpenQuestion(position, question.digest)
        return [key for key, other in self._current_state.asked.items() if other == open_question]

    def _drop_from(self, position: int) -> None:
        """Forget the answers and questions from a position on."""
        self._answered = {n: answer for n, answer in self._answered.items() if n < position}
        if self._state is not None:
            earlier = {
                key: question
                for key, question in self._state.asked.items()
                if question.position < position
            }
            self._state = replace(self._state, asked=earlier)

    def _count_correction(self, problem: str) -> None:
        corrections = self._current_state.corrections + 1
        if corrections > MAX_CORRECTIONS:
            raise ToolError(f"The answers did not fit, {MAX_CORRECTIONS} times: {problem}")
        self._state = replace(self._current_state, corrections=corrections)

    @property
    def must_stop(self) -> bool:
        """Whether the function must end here, even if it swallowed ``InputRequired``."""
        return bool(self._requests) or self._starts_task

    @property
    def starts_task(self) -> bool:
        """Whether the function continues as a task and no question is open before that."""
        return self._starts_task and not self._requests

    def state(self) -> bytes:
        """Return the encoded state, for the row of a task."""
        return encode(self._next_state().from_position(self._approval_boundary))

    def result(self) -> dict[str, Any]:
        """Return the questions as the result of the request.

        Raises:
            URLElicitationRequired: the client can learn of the pages only from this error.
        """
        if not self._client.has_channel:
            raise url_elicitation_error(self._requests, self._revision, self.elicitation_id)
        asking = {"resultType": "input_required", "inputRequests": self._requests}
        if self._revision.stateless:
            asking["requestState"] = self._sign()
        return asking

    def elicitation_id(self, key: str) -> str:
        """Return the elicitation id of a question that sends the user to a page."""
        return f"{self.interaction_id}.{key}"

    def resume(self, answers: Mapping[str, Any]) -> None:
        """Begin another round in this process, with the client's answers by key."""
        self._state = self._next_state()
        self._is_first = self._starts_task = False
        self._responses = {key: msgspec.Raw(encode(answer)) for key, answer in answers.items()}
        self._position = 0
        self._requests, self._asked = {}, {}

    def _sign(self) -> str:
        return self._next_state().sign()

    def _next_state(self) -> RequestState:
        state = self._current_state
        port = self._port
        return replace(
            state,
            answered=self._answered,
            asked=self._asked,
            progress=port.progress_count if port else state.progress,
            logs=port.log_count if port else state.logs,
        )

    @property
    def _current_state(self) -> RequestState:
        """The state that the client sent, or a new one."""
        with self._lock:
            # Two threads that read the id must get the same one.
            if self._state is None:
                self._state = RequestState(
                    subject=self._subject,
                    interaction_id=new_interaction(self._principal),
                )
            return self._state

    @property
    def _subject(self) -> str:
        """The digest that a state is bound to."""
        return _digest_of(self._names, self._arguments)

    def replay_port(self, port: ClientPort | None) -> ClientPort | None:
        """Return a port to the client that skips the messages of earlier rounds."""
        if port is None:
            return None
        envelope = self._envelope
        self._port = _ReplayPort(
            port,
            progress=self._state.progress if self._state else 0,
            logs=self._state.logs if self._state else 0,
            hears_progress=envelope.progress_token is not None,
            hears_logs=envelope.log_level is not None,
        )
        return self._port


def _with_objects(question: Question, answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with empty objects in place of the empty arrays that PHP clients send.

    They represent a form whose fields are all left empty, and a model's use of a tool without
    arguments.
    """
    content = answer.get("content")
    if question.method == "elicitation/create":
        return {**answer, "content": {}} if content == [] else answer
    if question.method != "sampling/createMessage":
        return answer
    blocks = [
        {**block, "input": {}} if isinstance(block, dict) and block.get("input") == [] else block
        for block in (content if isinstance(content, list) else [content])
    ]
    return {**answer, "content": blocks if isinstance(content, list) else blocks[0]}


# Capabilities of the client -----------------------------------------------------------------------

# For a client that declares the capability, at revisions with sessions.
NEEDS_STREAM = (
    "requests to the client need a stream: it must accept text/event-stream, and the site must run "
    "under ASGI."
)


class _ClientCapabilities:
    """Checks which questions the client of one request supports, and in which form."""

    def __init__(self, call: Call, component: Component) -> None:
        self._can_ask, self._revision = call.can_ask, call.revision
        self._capabilities = call.envelope.client_capabilities
        self._component = component

    @property
    def has_channel(self) -> bool:
        """Whether a question can reach the client before the response, or as the response."""
        return self._revision.stateless or self._can_ask

    def supports(self, name: str) -> bool:
        """Return whether the client declares this capability and can be reached."""
        # Without a channel, the client learns of the question from an error, and then calls again.
        learns_from_error = name == "elicitation.url" and self._revision.elicitation_ids
        if not (self.has_channel or learns_from_error):
            return False
        return self._revision.defines_capability(name) and declares_capability(
            self._capabilities, name
        )

    def require_capabilities(self, names: Sequence[str]) -> None:
        """Check that the client supports all of these capabilities.

        Raises:
            MissingCapability: a capability is missing; the error names all that are.
        """
        missing = [name for name in names if not self.supports(name)]
        if not missing:
            return
        is_form = any(name.startswith("elicitation") for name in missing)
        kind = ElicitationUnavailable if is_form else MissingCapability
        declared, asks = self._capabilities, self._revision.defines_capability
        is_able = all(asks(name) and declares_capability(declared, name) for name in missing)
        raise kind(
            f"{self._component} needs a client that declares {' and '.join(sorted({*missing}))}."
            + (
                f" This client does, but {NEEDS_STREAM}" if is_able and not self.has_channel else ""
            ),
            data={"requiredCapabilities": capabilities_declaration(missing)},
        )

    def check_expressible(self, questions: Sequence[Question]) -> None:
        """Check that the revision of the request can express all questions.

        Raises:
            MissingCapability: the revision cannot express one; the error names what it lacks.
        """
        revision = self._revision
        for question in questions:
            lacking = find_inexpressible(question.method, question.to_params(), revision)
            if lacking is not None:
                is_form = question.needs.startswith("elicitation")
                kind = ElicitationUnavailable if is_form else MissingCapability
                raise kind(
                    f"{self._component} asks with {lacking}, which {revision.version} does not "
                    "support.",
                    data={"requiredCapabilities": capabilities_declaration([question.needs])},
                )


# ``requestState`` ---------------------------------------------------------------------------------

# The state is bound to caller, server, method, component and arguments. It contains only digests,
# counts and earlier answers of the client. Keys rotate with ``SECRET_KEY_FALLBACKS``.

SALT = "mcp_django.request_state"
FORMAT = 1
# The limit of a state, which contains the answers of earlier rounds, before compression: repetitive
# answers shrink to a thousandth, and every later request would expand them to megabytes again.
MAX_BYTES = 1024 * 1024
_RETRY_HINT = "send the same params with it, or call again without it"


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that was sent to the client and not yet answered."""

    position: int
    digest: str


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question that the client has answered, with the answer."""

    digest: str
    answer: Mapping[str, Any]


class _StateFormat(msgspec.Struct):
    """The part of a state that every release can read."""

    format: int


class _BytesSerializer:
    """A serializer for ``signing`` that leaves bytes as they are."""

    def dumps(self, obj: bytes) -> bytes:
        return obj

    def loads(self, data: bytes) -> bytes:
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """The state of an interaction between two rounds."""

    format: int = FORMAT
    subject: str
    """The digest that the state is bound to."""
    interaction_id: str
    answered: dict[int, AnsweredQuestion] = field(default_factory=dict)
    """By position; the first question of a run has position 0."""
    asked: dict[str, OpenQuestion] = field(default_factory=dict)
    """By key of the question."""
    progress: int = 0
    """The number of progress reports that the client has received."""
    logs: int = 0
    """The number of log messages that the client has received."""
    corrections: int = 0
    """The number of answers that had to be corrected."""

    def from_position(self, first: int) -> RequestState:
        """Return the state of a run whose first question is the one at this position."""
        answered = {n - first: answer for n, answer in self.answered.items() if n >= first}
        open_questions = {
            key: OpenQuestion(question.position - first, question.digest)
            for key, question in self.asked.items()
            if question.position >= first
        }
        return replace(self, answered=answered, asked=open_questions)

    def sign(self) -> str:
        """Return the state as signed text.

        Raises:
            ToolError: the answers so far are too large for a state.
        """
        plain = encode(self)
        # The client sends it back with its arguments, and base64 adds a third.
        if len(plain) > min(MAX_BYTES, get_settings().max_body_bytes // 2):
            raise ToolError("The answers so far are too large to ask anything more; ask for less.")
        return signing.dumps(plain, salt=SALT, serializer=_BytesSerializer, compress=True)


def _question_key(position: int, question: Question) -> str:
    """Return the key that the author gave the question, or a unique one."""
    return question.key or f"{question.needs.replace('.', '_')}_{position}_{question.digest[:8]}"


def _read_state(signed: str, *, subject: str) -> RequestState:
    """Return the state that a client has sent back.

    Raises:
        InvalidParams: the state was modified, has expired, or belongs to another request.
    """
    seconds = get_settings().client_request_timeout
    try:
        plain: bytes = signing.loads(
            signed, salt=SALT, serializer=_BytesSerializer, max_age=timedelta(seconds=seconds)
        )
    except signing.SignatureExpired:
        raise InvalidParams(
            f"params.requestState is older than {seconds:g} seconds; call again without it."
        ) from None
    except signing.BadSignature:
        raise InvalidParams(
            "params.requestState is not what this server sent; call again without it."
        ) from None
    if msgspec.json.decode(plain, type=_StateFormat).format != FORMAT:
        raise InvalidParams("params.requestState is from another release; call again without it.")
    state = msgspec.json.decode(plain, type=RequestState)
    if state.subject != subject:
        raise InvalidParams(f"params.requestState belongs to another request; {_RETRY_HINT}.")
    return state


def state_subject(call: Call, component: Component, arguments: bytes) -> str:
    """Return the digest that a state of this request is bound to; argument order is ignored.

    Numbers are parsed as decimals: as floats, two amounts could be equal, and some not finite.
    """
    return _digest_of(_names_of(call, component), arguments)


def _names_of(call: Call, component: Component) -> tuple[str, ...]:
    """Return the names of the caller, server, method and component, and of the tenant if any."""
    names = (call.principal.key, call.server.name, call.request.method, component.key)
    tenant = current_tenant()
    return (*names, tenant) if tenant else names


def _digest_of(names: Sequence[str], arguments: bytes) -> str:
    exact = json.loads(arguments, parse_float=Decimal, parse_int=Decimal)
    return hashlib.sha256(repr([*names, sorted_members(exact)]).encode()).hexdigest()[:32]


class _ReplayPort:
    """Skips as many progress reports and log messages as earlier rounds have delivered.

    A component that runs again repeats its messages; the client gets each of them once. A round
    whose client did not request messages delivers none, and leaves the counts unchanged.
    """

    def __init__(
        self, port: ClientPort, *, progress: int, logs: int, hears_progress: bool, hears_logs: bool
    ) -> None:
        self._port = port
        self._delivered = {"progress": progress, "logs": logs}
        self._seen = {"progress": 0, "logs": 0}
        self._wanted = {"progress": hears_progress, "logs": hears_logs}
        self._lock = threading.Lock()

    @property
    def progress_count(self) -> int:
        """The number of progress reports that the client has received in all rounds."""
        return self._count("progress")

    @property
    def log_count(self) -> int:
        """The number of log messages that the client has received in all rounds."""
        return self._count("logs")

    def _count(self, kind: str) -> int:
        return max(self._delivered[kind], self._seen[kind] if self._wanted[kind] else 0)

    def _is_new(self, kind: str) -> bool:
        with self._lock:
            self._seen[kind] += 1
            return self._seen[kind] > self._delivered[kind]

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send a progress report unless an earlier round sent it."""
        if self._is_new("progress"):
            self._port.progress(progress, total, message)

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Send a log message unless an earlier round sent it."""
        if self._is_new("logs"):
            self._port.log(level, data, logger)

    def close_stream(self, seconds: float) -> None:
        """Close the stream, in every round."""
        self._port.close_stream(seconds)
