"""Components for the prompts and skills that are written in the admin.

The author of a prompt need not be trusted with the site: a text can access only its arguments
(``overrides.prompt_language``). An invalid row, however it got into the table, is left out and
logged; other rows are not affected.
"""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import router
from django.utils.translation import gettext as _

from mcp_django.components.component import Completion, ComponentFunction, Prompt
from mcp_django.components.resource import MAX_FILES, SKILL_MD, Resource, SkillFile
from mcp_django.integrations.skills import (
    build_skill_files,
    check_frontmatter,
    skill_file_uri,
)
from mcp_django.integrations.yaml_core import SkillError
from mcp_django.overrides.override_values import build_permissions, is_name_list
from mcp_django.overrides.prompt_language import (
    NAME,
    RESERVED,
    MessageText,
    PromptError,
    parse_messages,
    render_messages,
)
from mcp_django.protocol.content import Message
from mcp_django.schema.arguments import (
    InvalidArguments,
    ValidationProblem,
    to_json_text,
    unknown_argument_problem,
)
from mcp_django.schema.values import decode_arguments
from mcp_django.storage.databases import tables
from mcp_django.tenants import of_tenant

logger = logging.getLogger("mcp_django")

S = TypeVar("S")
T = TypeVar("T")

MAX_ARGUMENTS = 30
MAX_NAME_CHARACTERS = 64
MAX_CHOICES = 200
MAX_VALUE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TextArgument:
    """One argument of a prompt; without ``choices`` it accepts any text.

    Arguments are not modeled as a Python signature, since ``from`` and ``class`` are useful names.
    """

    name: str
    description: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the argument as the row stores it."""
        return {**asdict(self), "choices": list(self.choices)}

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the value."""
        schema: dict[str, Any] = {"type": "string"}
        if self.description:
            schema["description"] = self.description
        if self.choices:
            schema["enum"] = list(self.choices)
        return schema


def parse_arguments(value: Any) -> tuple[TextArgument, ...]:
    """Return the arguments that a row stores.

    Raises:
        PromptError: an argument is invalid.
    """
    if not isinstance(value, list) or not all(isinstance(members, Mapping) for members in value):
        raise PromptError(_("The arguments are not a list of objects."))
    arguments: list[TextArgument] = []
    for members in value:
        name, description = members.get("name"), members.get("description", "")
        choices = members.get("choices", [])
        if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > MAX_NAME_CHARACTERS:
            message = _(
                "“%(name)s” is not a valid argument name: use a letter, then letters, digits and "
                "underscores."
            )
            raise PromptError(message % {"name": str(name)[:40]})
        if name in RESERVED:
            raise PromptError(_("“%(name)s” is reserved for conditions.") % {"name": name})
        if not isinstance(description, str) or not isinstance(choices, list):
            raise PromptError(_("The argument “%(name)s” is invalid.") % {"name": name})
        are_texts = all(isinstance(choice, str) and choice for choice in choices)
        if len(choices) > MAX_CHOICES or not are_texts:
            raise PromptError(
                _("The choices of “%(name)s” must be at most %(n)d texts that are not empty.")
                % {"name": name, "n": MAX_CHOICES}
            )
        argument = TextArgument(
            name=name,
            description=description,
            required=members.get("required") is True,
            choices=tuple(dict.fromkeys(choices)),
        )
        arguments.append(argument)
    names = [argument.name for argument in arguments]
    if len(names) > MAX_ARGUMENTS:
        raise PromptError(_("More than %(n)d arguments.") % {"n": MAX_ARGUMENTS})
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PromptError(_("There are two arguments “%(name)s”.") % {"name": twice})
    return tuple(arguments)


class TextArguments:
    """Validates the arguments of a prompt: strings, required values, and choices.

    An empty string counts as missing, since hosts send all fields of a form.
    """

    def __init__(self, arguments: Sequence[TextArgument]) -> None:
        self._arguments = {argument.name: argument for argument in arguments}
        self.json_schema: dict[str, Any] = {
            "type": "object",
            "properties": {argument.name: argument.schema for argument in arguments},
            "additionalProperties": False,
        }
        if required := [argument.name for argument in arguments if argument.required]:
            self.json_schema["required"] = required

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the values by name.

        Raises:
            InvalidArguments: an argument is invalid; the client can correct it.
        """
        values = decode_arguments(raw)
        known_values = {name: value for name, value in values.items() if name in self._arguments}
        problems = [
            *(
                unknown_argument_problem(name, self._arguments)
                for name in values
                if name not in known_values
            ),
            *(
                ValidationProblem(path=argument.name, message="is required")
                for argument in self._arguments.values()
                if argument.required and values.get(argument.name, "") == ""
            ),
            *filter(None, (self._problem(name, value) for name, value in known_values.items())),
        ]
        if problems:
            raise InvalidArguments(problems)
        return {name: value for name, value in values.items() if value != ""}

    def _problem(self, name: str, value: Any) -> ValidationProblem | None:
        choices = self._arguments[name].choices
        if not isinstance(value, str):
            return ValidationProblem(path=name, value=value, message="must be a string")
        if len(value) > MAX_VALUE_CHARACTERS:
            message = f"must have at most {MAX_VALUE_CHARACTERS} characters"
            return ValidationProblem(path=name, message=message)
        if value and choices and value not in choices:
            listed = ", ".join(map(to_json_text, choices))
            return ValidationProblem(path=name, value=value, message=f"must be one of {listed}")
        return None


def matching_choices(choices: Sequence[str], typed: str) -> list[str]:
    """Return the choices that contain the typed text, those that begin with it first."""
    text = typed.casefold()
    matches = [choice for choice in choices if text in choice.casefold()]
    return sorted(matches, key=lambda choice: not choice.casefold().startswith(text))


# Prompts ------------------------------------------------------------------------------------------

PROMPT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpec:
    """The values of a prompt row; hashable, so that results can be cached."""

    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[TextArgument, ...] = ()
    text: str = ""
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


PROMPT_COLUMNS = tuple(field.name for field in fields(PromptSpec))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPrompt:
    """The component of a prompt, and the completions of its arguments."""

    prompt: Prompt
    completions: Mapping[Key, Completion]


class AdminOrigin:
    """The origin of components written in the admin, in place of a declaring class."""

    def __str__(self) -> str:
        return _("written in the admin")


ADMIN_ORIGIN = AdminOrigin()


def parse_prompt_row(row: Mapping[str, Any]) -> PromptSpec:
    """Return the values of a row's columns.

    Raises:
        PromptError: a column has an invalid value.
    """
    spec = _spec_of(PromptSpec, row, PROMPT_COLUMNS, PromptError)
    return replace(spec, arguments=parse_arguments(spec.arguments))


def _spec_of(
    spec_class: type[S], row: Mapping[str, Any], columns: Sequence[str], error: Callable[..., Any]
) -> S:
    values = {name: row[name] for name in columns}
    for name in ("groups", "permissions", "scopes"):
        if not is_name_list(values[name]):
            # Invalid data must not be read as an empty list, which would give every user access.
            raise error(_("%(name)s is not a list of names.") % {"name": name}, field=name)
        values[name] = tuple(values[name])
    return spec_class(**values)


def build_prompt(spec: PromptSpec) -> BuiltPrompt:
    """Return the component and completions of a prompt.

    Raises:
        PromptError: the prompt is invalid; the message is for its author.
    """
    if not PROMPT_NAME.fullmatch(spec.name):
        raise PromptError(
            _("“%(name)s” is not a valid prompt name: use up to 128 of A-Z a-z 0-9 _ . -")
            % {"name": spec.name[:40]}
        )
    _check_sendable(spec)
    messages = parse_messages(spec.text, [argument.name for argument in spec.arguments])
    try:
        prompt = Prompt(
            name=spec.name,
            title=spec.title,
            description=spec.description,
            function=_function(messages),
            arguments=TextArguments(spec.arguments),
            permission=list(build_permissions(spec.groups, spec.permissions)) or None,
            scopes=spec.scopes,
            read_only=True,
        )
    except ImproperlyConfigured as exc:
        raise PromptError(str(exc)) from None
    completions = dict(
        _completion(prompt, argument) for argument in spec.arguments if argument.choices
    )
    return BuiltPrompt(prompt=prompt, completions=completions)


def _check_sendable(spec: PromptSpec) -> None:
    """Reject lone surrogates, which JSON can contain but UTF-8 cannot: they would break lists."""
    texts = [spec.title, spec.description, spec.text]
    for argument in spec.arguments:
        texts += [argument.description, *argument.choices]
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise PromptError(_("The prompt contains characters that cannot be sent.")) from None


def _function(messages: tuple[MessageText, ...]) -> ComponentFunction:
    def written_in_admin(**values: str) -> list[Message]:
        return render_messages(messages, values)

    return _as_component(written_in_admin)


def _as_component(function: Any) -> ComponentFunction:
    function.declared_by = ADMIN_ORIGIN
    return ComponentFunction(function=function, is_async=False, context_parameter=None)


def _completion(prompt: Prompt, argument: TextArgument) -> tuple[Key, Completion]:
    def choices(value: str) -> list[str]:
        return matching_choices(argument.choices, value)

    completion = Completion(
        kind="prompt", key=prompt.key, argument=argument.name, function=_as_component(choices)
    )
    return ("prompt", prompt.key, argument.name), completion


def read_prompts() -> dict[str, tuple[PromptSpec, ...]]:
    """Return the enabled prompts by server name, without invalid rows."""
    return _read_rows("prompt", tables.PromptText, PROMPT_COLUMNS, parse_prompt_row)


def add_prompts(
    prompts: Mapping[str, Prompt],
    completions: Mapping[Key, Completion],
    specs: Iterable[PromptSpec],
) -> tuple[dict[str, Prompt], dict[Key, Completion]]:
    """Add the admin's prompts to those of code; if names collide, code takes precedence."""
    built_prompts = [
        built_prompt
        for spec in specs
        if spec.name not in prompts and (built_prompt := _build_cached(spec))
    ]
    return (
        {
            **{built_prompt.prompt.key: built_prompt.prompt for built_prompt in built_prompts},
            **prompts,
        },
        {
            **completions,
            **{
                key: completion
                for built_prompt in built_prompts
                for key, completion in built_prompt.completions.items()
            },
        },
    )


@lru_cache(maxsize=1000)
def _build_cached(spec: PromptSpec) -> BuiltPrompt | None:
    """Return the cached component of a prompt, or ``None`` if the prompt is invalid."""
    try:
        return build_prompt(spec)
    except PromptError as exc:
        _log_invalid_row("prompt", "", spec.name, str(exc))
        return None


def _read_rows(
    kind: str, model: Any, columns: Sequence[str], parse_row: Callable[[Mapping[str, Any]], T]
) -> dict[str, tuple[T, ...]]:
    """Return the values of enabled rows by server name, the oldest first; log invalid rows."""
    rows = of_tenant(model, router.db_for_write(model)).filter(is_enabled=True)
    specs_by_server: dict[str, list[T]] = defaultdict(list)
    for row in rows.order_by("pk").values("pk", "server", *columns):
        try:
            specs_by_server[row["server"]].append(parse_row(row))
        except (PromptError, SkillError) as exc:
            _log_invalid_row(kind, row["server"], row["name"], str(exc))
    return {server: tuple(specs) for server, specs in specs_by_server.items()}


@lru_cache(maxsize=1000)
def _log_invalid_row(kind: str, server: str, name: str, reason: str) -> None:
    where = f" of the server {server!r}" if server else ""
    logger.error("The %s %r%s in the admin is left out: %s", kind, name[:128], where, reason)


# Skills -------------------------------------------------------------------------------------------

FIELDS = ("name", "description", "license", "compatibility")
# Every process keeps the whole skill in memory.
MAX_CHARACTERS = 500_000

_FILE = re.compile(r"^--- file: (.*)$", re.MULTILINE)
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){0,9}")
# Characters that YAML 1.2 does not allow within quotes, or reads as line breaks.
_UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSpec:
    """The values of a skill row; hashable, so that results can be cached."""

    name: str
    description: str = ""
    license: str = ""
    compatibility: str = ""
    text: str = ""
    supporting_files: str = ""
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


SKILL_COLUMNS = tuple(field.name for field in fields(SkillSpec))


def parse_skill_row(row: Mapping[str, Any]) -> SkillSpec:
    """Return the values of a row's columns.

    Raises:
        SkillError: a column has an invalid value.
    """
    return _spec_of(SkillSpec, row, SKILL_COLUMNS, SkillError)


def _frontmatter_of(spec: SkillSpec) -> dict[str, str]:
    """Return the frontmatter of a skill.

    Raises:
        SkillError: hosts would reject it; names the field.
    """
    frontmatter = {name: value for name in FIELDS if (value := getattr(spec, name))}
    for name, value in frontmatter.items():
        if _UNWRITABLE.search(value):
            raise SkillError(_("The text contains characters that cannot be sent."), field=name)
    check_frontmatter(frontmatter)
    return frontmatter


def render_skill_md(spec: SkillSpec) -> str:
    """Return the ``SKILL.md`` that clients read.

    Raises:
        SkillError: hosts would reject its frontmatter; names the field.
    """
    # A JSON string is a quoted string in YAML, so no parser reads it as another type.
    lines = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in _frontmatter_of(spec).items()
    ]
    return "\n".join(["---", *lines, "---", "", spec.text.strip("\n"), ""])


def parse_files(text: str) -> dict[str, str]:
    """Return the files beside the ``SKILL.md`` by path.

    Raises:
        SkillError: a file name is invalid or used twice.
    """
    before, *parts = _FILE.split(text)
    if before.strip():
        message = _("Begin with a line “--- file: references/codes.md”, followed by the contents.")
        raise SkillError(message, field="supporting_files")
    paths = [*map(str.strip, parts[::2])]
    # Checked first, since each path is compared with all others below.
    if len(paths) >= MAX_FILES:
        raise SkillError(_("There are too many files."), field="supporting_files")
    files: dict[str, str] = {}
    for path, content in zip(paths, parts[1::2], strict=True):
        if not _PATH.fullmatch(path):
            message = _(
                "“%(path)s” is not a valid file name: use A-Z a-z 0-9 _ . - with / between "
                "folders, and do not begin a name with a dot."
            )
            raise SkillError(message % {"path": path[:80]}, field="supporting_files")
        if path.rpartition("/")[2].lower() == SKILL_MD.lower():
            message = _("The file SKILL.md is generated from the other fields.")
            raise SkillError(message, field="supporting_files")
        for other in files:
            if path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/"):
                message = _("“%(path)s” is used twice, or is also a folder.") % {"path": path[:80]}
                raise SkillError(message, field="supporting_files")
        files[path] = content.strip("\n") + "\n"
    return files


def build_skill(spec: SkillSpec) -> list[SkillFile]:
    """Return the resources of a skill, as for a skill in a folder.

    Raises:
        SkillError: the skill is invalid; the message is for its author, and names the field.
    """
    if not spec.text.strip():
        raise SkillError(_("The instructions are empty."), field="text")
    if len(spec.text) + len(spec.supporting_files) > MAX_CHARACTERS:
        message = _("The skill has more than %(n)d characters; put it into a folder of the site.")
        raise SkillError(message % {"n": MAX_CHARACTERS}, field="text")
    texts = {SKILL_MD: render_skill_md(spec), **parse_files(spec.supporting_files)}
    try:
        contents = {path: text.encode() for path, text in texts.items()}
    except UnicodeEncodeError:
        # A lone surrogate, which JSON can contain but UTF-8 cannot.
        message = _("The text contains characters that cannot be sent.")
        raise SkillError(message, field="text") from None
    try:
        options = {
            "permission": list(build_permissions(spec.groups, spec.permissions)) or None,
            "scopes": spec.scopes,
        }
        return build_skill_files(
            spec.name,
            contents,
            {SKILL_MD: _frontmatter_of(spec)},
            origin=ADMIN_ORIGIN,
            module=__name__,
            options=options,
        )
    except ImproperlyConfigured as exc:
        raise SkillError(str(exc)) from None


def read_skills() -> dict[str, tuple[SkillSpec, ...]]:
    """Return the enabled skills by server name, without invalid rows."""
    return _read_rows("skill", tables.Skill, SKILL_COLUMNS, parse_skill_row)


def add_skills(
    resources: Mapping[str, Resource], specs: Iterable[SkillSpec]
) -> dict[str, Resource]:
    """Add the admin's skills to the resources of code; code's names take precedence."""
    all_resources = dict(resources)
    for spec in specs:
        if is_skill_name_taken(resources, spec.name):
            continue
        try:
            files = build_skill(spec)
        except SkillError as exc:
            _log_invalid_row("skill", "", spec.name, str(exc))
            continue
        all_resources.update((file.key, file) for file in files)
    return all_resources


def is_skill_name_taken(resources: Mapping[str, Resource], name: str) -> bool:
    """Return whether code has a resource at or below the URI of a skill of this name.

    Otherwise the admin's skill would become part of the skill in code, or contain it.
    """
    root = skill_file_uri(name, "")
    addresses = (
        uri for resource in resources.values() for uri in (resource.uri, *resource.aliases)
    )
    return any(uri.startswith(root) for uri in addresses)
