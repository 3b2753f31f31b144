"""The valid members of `inputRequests` at 2026-07-28 (schema: InputRequest).

Closed, unlike the schema: hosts that check strictly reject a question with a member that the
specification does not name. An optional member must be absent; null is not valid.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter
from typing_extensions import TypedDict

CLOSED = ConfigDict(extra="forbid", strict=True)
Priority: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class Option(TypedDict):
    """A choice with its label."""

    __pydantic_config__ = CLOSED
    const: str
    title: str


class _Field(TypedDict):
    __pydantic_config__ = CLOSED
    title: NotRequired[str]
    description: NotRequired[str]


class StringField(_Field):
    """Text."""

    type: Literal["string"]
    minLength: NotRequired[int]
    maxLength: NotRequired[int]
    format: NotRequired[Literal["email", "uri", "date", "date-time"]]
    default: NotRequired[str]


class NumberField(_Field):
    """A number."""

    type: Literal["number", "integer"]
    minimum: NotRequired[int | float]
    maximum: NotRequired[int | float]
    default: NotRequired[int | float]


class BooleanField(_Field):
    """Yes or no."""

    type: Literal["boolean"]
    default: NotRequired[bool]


class UntitledChoice(_Field):
    """One of several values; `enumNames` are the labels at 2025-06-18."""

    type: Literal["string"]
    enum: Annotated[list[str], Field(min_length=1)]
    enumNames: NotRequired[list[str]]
    default: NotRequired[str]


class TitledChoice(_Field):
    """One of several values with labels."""

    type: Literal["string"]
    oneOf: Annotated[list[Option], Field(min_length=1)]
    default: NotRequired[str]


class UntitledItems(TypedDict):
    """The items of a list of values."""

    __pydantic_config__ = CLOSED
    type: Literal["string"]
    enum: Annotated[list[str], Field(min_length=1)]


class TitledItems(TypedDict):
    """The items of a list of values with labels."""

    __pydantic_config__ = CLOSED
    anyOf: Annotated[list[Option], Field(min_length=1)]


class Choices(_Field):
    """Some of several values."""

    type: Literal["array"]
    items: UntitledItems | TitledItems
    minItems: NotRequired[int]
    maxItems: NotRequired[int]
    default: NotRequired[list[str]]


def _kind(field: Any) -> str:
    if not isinstance(field, dict):
        return "string"
    return next(
        (keyword for keyword in ("enum", "oneOf") if keyword in field), str(field.get("type"))
    )


AnyField: TypeAlias = Annotated[
    Annotated[StringField, Tag("string")]
    | Annotated[NumberField, Tag("number")]
    | Annotated[NumberField, Tag("integer")]
    | Annotated[BooleanField, Tag("boolean")]
    | Annotated[UntitledChoice, Tag("enum")]
    | Annotated[TitledChoice, Tag("oneOf")]
    | Annotated[Choices, Tag("array")],
    Discriminator(_kind),
]

Form = TypedDict(
    "Form",
    {
        "$schema": NotRequired[str],
        "type": Literal["object"],
        "properties": dict[str, AnyField],
        "required": NotRequired[list[str]],
    },
)
Form.__pydantic_config__ = CLOSED


class FormParams(TypedDict):
    """A form to fill in."""

    __pydantic_config__ = CLOSED
    mode: NotRequired[Literal["form"]]
    message: str
    requestedSchema: Form


class URLParams(TypedDict):
    """A page to visit."""

    __pydantic_config__ = CLOSED
    mode: Literal["url"]
    message: str
    url: Annotated[str, Field(pattern=r"^https?://[!-~]+$")]


class TextBlock(TypedDict):
    """Text of a message."""

    __pydantic_config__ = CLOSED
    type: Literal["text"]
    text: str


class MediaBlock(TypedDict):
    """A picture or a sound of a message."""

    __pydantic_config__ = CLOSED
    type: Literal["image", "audio"]
    data: str
    mimeType: str


class ToolUseBlock(TypedDict):
    """A tool that the model wants to use."""

    __pydantic_config__ = CLOSED
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(TypedDict):
    """The result of a tool."""

    __pydantic_config__ = CLOSED
    type: Literal["tool_result"]
    toolUseId: str
    content: list[dict[str, Any]]
    isError: NotRequired[bool]


SamplingBlock: TypeAlias = TextBlock | MediaBlock | ToolUseBlock | ToolResultBlock


class SamplingMessage(TypedDict):
    """One message of a conversation."""

    __pydantic_config__ = CLOSED
    role: Literal["user", "assistant"]
    content: SamplingBlock | list[SamplingBlock]


class Hint(TypedDict):
    """A part of a model's name."""

    __pydantic_config__ = CLOSED
    name: NotRequired[str]


class ModelPreferences(TypedDict):
    """The priorities in the choice of a model."""

    __pydantic_config__ = CLOSED
    hints: NotRequired[list[Hint]]
    costPriority: NotRequired[Priority]
    speedPriority: NotRequired[Priority]
    intelligencePriority: NotRequired[Priority]


class ObjectSchema(TypedDict):
    """The schema of a tool's arguments."""

    type: Literal["object"]


class OfferedTool(TypedDict):
    """A tool that the model can call."""

    name: str
    description: NotRequired[str]
    inputSchema: ObjectSchema


class ToolChoice(TypedDict):
    """Whether the model may or must call tools."""

    __pydantic_config__ = CLOSED
    mode: Literal["auto", "required", "none"]


class SamplingParams(TypedDict):
    """A message to be written by a model; `includeContext` is deprecated (ASK-8)."""

    __pydantic_config__ = CLOSED
    messages: Annotated[list[SamplingMessage], Field(min_length=1)]
    maxTokens: Annotated[int, Field(ge=1)]
    systemPrompt: NotRequired[str]
    temperature: NotRequired[float]
    stopSequences: NotRequired[list[str]]
    modelPreferences: NotRequired[ModelPreferences]
    metadata: NotRequired[dict[str, Any]]
    tools: NotRequired[list[OfferedTool]]
    toolChoice: NotRequired[ToolChoice]


class Elicitation(TypedDict):
    """A question to the user."""

    __pydantic_config__ = CLOSED
    method: Literal["elicitation/create"]
    params: FormParams | URLParams


class Sampling(TypedDict):
    """A request for a message by the client's model."""

    __pydantic_config__ = CLOSED
    method: Literal["sampling/createMessage"]
    params: SamplingParams


class RootsNothing(TypedDict):
    """Parameters of a request for roots, which are empty."""

    __pydantic_config__ = CLOSED


class Roots(TypedDict):
    """A request for the user's folders."""

    __pydantic_config__ = CLOSED
    method: Literal["roots/list"]
    params: NotRequired[RootsNothing]


_requests: TypeAdapter[Any] = TypeAdapter(
    dict[
        Annotated[str, Field(min_length=1, max_length=128)],
        Annotated[Elicitation | Sampling | Roots, Field(discriminator="method")],
    ]
)
_forms: TypeAdapter[Any] = TypeAdapter(Form)


def check_requests(requests: Any) -> None:
    """Fail when `inputRequests` holds anything that a strict host would refuse."""
    _requests.validate_python(requests)


def check_form(schema: Any) -> None:
    """Fail when a form has a keyword or a value that a strict host would refuse."""
    _forms.validate_python(schema)
