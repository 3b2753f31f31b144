"""Prompts that were written in the admin, as components like those of code.

Whoever writes one is trusted with words, not with the site: a text reaches nothing but its
arguments (``prompt_language``). A row that cannot be offered, whoever put it into the table, is
left out and logged, and nothing else suffers.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import router
from django.utils.translation import gettext as _

from mcp_django.core.component import Completion, ComponentFunction, Prompt
from mcp_django.managed.exposures.spec import is_names
from mcp_django.managed.narrowing import guards_of
from mcp_django.managed.prompt_arguments import (
    TextArgument,
    TextArguments,
    arguments_of,
    suggestions,
)
from mcp_django.managed.prompt_errors import PromptError
from mcp_django.managed.prompt_rendering import MessageText, read, render
from mcp_django.protocol.content import Message
from mcp_django.storage.databases import tables

logger = logging.getLogger("mcp_django")

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
COLUMNS = (
    "name",
    "title",
    "description",
    "arguments",
    "text",
    "groups",
    "permissions",
    "scopes",
)

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPrompt:
    """What a row says."""

    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[TextArgument, ...] = ()
    text: str = ""
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The component of a written prompt, and what completes its arguments."""

    prompt: Prompt
    completions: Mapping[Key, Completion]


class FromAdmin:
    """Where a written prompt comes from, in place of a class that code declares."""

    def __str__(self) -> str:
        return _("written in the admin")


FROM_ADMIN = FromAdmin()


def written(row: Mapping[str, Any]) -> WrittenPrompt:
    """What the columns of a row say.

    Raises:
        PromptError: one of them holds what it should not.
    """
    lists = {name: row[name] for name in ("groups", "permissions", "scopes")}
    for name, value in lists.items():
        if not is_names(value):
            # Never taken for "nobody was named", which would let everybody in.
            raise PromptError(_("%(name)s is no list of names.") % {"name": name})
    return WrittenPrompt(
        name=row["name"],
        title=row["title"],
        description=row["description"],
        arguments=arguments_of(row["arguments"]),
        text=row["text"],
        **{name: tuple(value) for name, value in lists.items()},
    )


def build(said: WrittenPrompt) -> Offer:
    """What is offered of a prompt.

    Raises:
        PromptError: it cannot be offered; the message is for its author.
    """
    if not NAME.fullmatch(said.name):
        raise PromptError(
            _("“%(name)s” is no name for a prompt: use up to 128 of A-Z a-z 0-9 _ . -")
            % {"name": said.name[:40]}
        )
    _check_sendable(said)
    messages = read(said.text, [one.name for one in said.arguments])
    try:
        prompt = Prompt(
            name=said.name,
            title=said.title,
            description=said.description,
            function=_function(messages),
            arguments=TextArguments(said.arguments),
            permission=list(guards_of(said.groups, said.permissions)) or None,
            scopes=said.scopes,
            read_only=True,
        )
    except ImproperlyConfigured as exc:
        raise PromptError(str(exc)) from None
    return Offer(prompt=prompt, completions=dict(map(partial(_completion, prompt), _closed(said))))


def _check_sendable(said: WrittenPrompt) -> None:
    """Half a surrogate pair, which JSON can hold and UTF-8 cannot, would take the list with it."""
    texts = [said.title, said.description, said.text]
    for one in said.arguments:
        texts += [one.description, *one.choices]
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise PromptError(_("It has characters that cannot be sent.")) from None


def _function(messages: tuple[MessageText, ...]) -> ComponentFunction:
    def written_in_admin(**values: str) -> list[Message]:
        return render(messages, values)

    return _as_component(written_in_admin)


def _as_component(function: Any) -> ComponentFunction:
    function.declared_by = FROM_ADMIN
    return ComponentFunction(function=function, is_async=False, context_parameter=None)


def _closed(said: WrittenPrompt) -> Iterable[TextArgument]:
    return (one for one in said.arguments if one.choices)


def _completion(prompt: Prompt, argument: TextArgument) -> tuple[Key, Completion]:
    def choices(value: str) -> list[str]:
        return suggestions(argument.choices, value)

    completion = Completion(
        kind="prompt", key=prompt.key, argument=argument.name, function=_as_component(choices)
    )
    return ("prompt", prompt.key, argument.name), completion


def read_prompts() -> dict[str, tuple[WrittenPrompt, ...]]:
    """The enabled prompts by the name of their server, those left out that cannot be read."""
    model = tables.PromptText
    rows = model._default_manager.using(router.db_for_write(model)).filter(is_enabled=True)
    found: dict[str, list[WrittenPrompt]] = defaultdict(list)
    for row in rows.order_by("pk").values("pk", "server", *COLUMNS):
        try:
            found[row["server"]].append(written(row))
        except PromptError as exc:
            _complain(row["server"], row["name"], str(exc))
    return {server: tuple(prompts) for server, prompts in found.items()}


def with_written(
    prompts: Mapping[str, Prompt],
    completions: Mapping[Key, Completion],
    said: Iterable[WrittenPrompt],
) -> tuple[dict[str, Prompt], dict[Key, Completion]]:
    """The prompts of code and the written ones beside them; of one name, code's own counts."""
    offers = [offer for one in said if one.name not in prompts and (offer := _offer(one))]
    return (
        {**{one.prompt.key: one.prompt for one in offers}, **prompts},
        {**completions, **{key: one for offer in offers for key, one in offer.completions.items()}},
    )


@lru_cache(maxsize=1000)
def _offer(said: WrittenPrompt) -> Offer | None:
    """What is offered of a prompt, read once while it says the same; ``None`` for nothing."""
    try:
        return build(said)
    except PromptError as exc:
        _complain("", said.name, str(exc))
        return None


@lru_cache(maxsize=1000)
def _complain(server: str, name: str, why: str) -> None:
    where = f" of the server {server!r}" if server else ""
    logger.error("The written prompt %r%s is not offered: %s", name[:128], where, why)
