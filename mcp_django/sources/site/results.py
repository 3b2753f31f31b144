"""From what the site answered to what a component gives back."""

from __future__ import annotations

import json
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

from django.conf import settings as django_settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch

from mcp_django.conf import get_settings
from mcp_django.exceptions import ToolError
from mcp_django.execution import results
from mcp_django.execution.results import to_text
from mcp_django.protocol.content import (
    Audio,
    Block,
    EmbeddedResource,
    Image,
    Message,
    ResourceContents,
    Text,
    ToolResult,
)
from mcp_django.schema.values import jsonable
from mcp_django.sources.site.answers import Answer
from mcp_django.sources.site.readable import readable

MAX_LOCATION = 500
TEXT_TYPES = frozenset(
    {
        "application/ecmascript",
        "application/javascript",
        "application/x-ndjson",
        "application/xml",
        "application/yaml",
    }
)


def check(answer: Answer, *, verb: str) -> None:
    """Refuse an answer that is not what was asked for.

    Raises:
        Http404: the site found nothing.
        PermissionDenied: the site refused.
        ToolError: anything else that went wrong, with its status and reason.
    """
    if answer.is_redirect:
        _check_redirect(answer, verb)
    elif answer.status in {404, 410}:
        # Not the view's own, which is raised before, but a middleware's.
        raise Http404("Not found.")
    elif answer.status == 403:
        raise PermissionDenied
    elif answer.status >= 400:
        _refuse(answer)


def _check_redirect(answer: Answer, verb: str) -> None:
    target = answer.location[:MAX_LOCATION]
    if _is_sign_in(answer):
        raise ToolError(
            f"You may not do this: the site asks for a sign-in at {target}, which was not followed."
            + said(answer)
        )
    if verb == "GET":
        raise ToolError(
            f"There is no page here: the site redirects to {target}, which was not followed."
            + said(answer)
        )


def _refuse(answer: Answer) -> NoReturn:
    """Say the status; what else is said only where the view itself said it.

    Django's own page of an error may show the site's settings and code.
    """
    told = _plain(answer) if answer.is_own else ""
    raise ToolError(f"The site answered {answer.title}.{said(answer)}" + (told and f"\n{told}"))


def _plain(answer: Answer) -> str:
    """What an error says of itself, as text."""
    if answer.mime_type == "text/html":
        return readable(answer.text)
    return answer.text if _is_text(answer.mime_type) else ""


def said(answer: Answer) -> str:
    """What the site said to its user on the way (Django's messages), behind a space."""
    return "".join(f" Message: {text}" for text in answer.messages)


def tool_result(answer: Answer, *, is_readable: bool) -> ToolResult:
    """The result of a tool."""
    notes = [Text(f"Message: {text}") for text in answer.messages]
    if answer.is_redirect:
        done = (
            f"Done. The site goes on to {answer.location[:MAX_LOCATION]}, which was not followed."
        )
        return ToolResult(done, *notes)
    if not answer.body:
        return ToolResult(f"Done: the site answered {answer.title}, with nothing in it.", *notes)
    found, value = _json(answer)
    if found:
        structure, note = _fitting(value)
        cut = [Text(note)] if note else []
        return ToolResult(Text(to_text(structure)), *cut, *notes, structured=structure)
    return ToolResult(*_blocks(answer, is_readable=is_readable), *notes)


def _fitting(value: Any) -> tuple[Any, str]:
    """The value cut to size, and a note of it; a page that was cut leads to no next one."""
    structure, note = results.cut_structure(value)
    if note and isinstance(structure, dict) and structure.get("next"):
        structure = {**structure, "next": None}
        note += " The link to the next page leads past what was cut: ask for smaller pages."
    return structure, note


def contents(answer: Answer, *, is_readable: bool) -> ResourceContents:
    """The contents of a resource; notes have no place in it."""
    found, value = _json(answer)
    if found:
        return ResourceContents(to_text(value), mime_type=answer.mime_type)
    mime_type = answer.mime_type or None
    if _is_text(answer.mime_type):
        is_reduced = is_readable and answer.mime_type == "text/html"
        mime_type = "text/markdown" if is_reduced else mime_type
        return ResourceContents(_text(answer, is_readable=is_readable), mime_type=mime_type)
    _check_size(answer)
    return ResourceContents(answer.body, mime_type=mime_type)


def messages(answer: Answer, *, is_readable: bool) -> list[Message]:
    """The messages of a prompt."""
    return [Message(block) for block in _blocks(answer, is_readable=is_readable)]


def _blocks(answer: Answer, *, is_readable: bool) -> list[Block]:
    if _is_text(answer.mime_type):
        return [Text(_text(answer, is_readable=is_readable))]
    _check_size(answer)
    family = answer.mime_type.partition("/")[0]
    if family == "image" and "svg" not in answer.mime_type:
        return [Image(answer.body, mime_type=answer.mime_type)]
    if family == "audio":
        return [Audio(answer.body, mime_type=answer.mime_type)]
    mime_type = answer.mime_type or "application/octet-stream"
    name = f"{answer.filename}: " if answer.filename else ""
    return [
        Text(f"{name}{mime_type}, {len(answer.body)} bytes."),
        EmbeddedResource(answer.url, data=answer.body, mime_type=mime_type),
    ]


def _text(answer: Answer, *, is_readable: bool) -> str:
    text = answer.text
    if is_readable and answer.mime_type == "text/html":
        text = readable(text)
    if answer.is_cut:
        text += "\n\n[Cut: there is more, and no more was read. Ask for a part of it.]"
    return results.cut_text(text)


def _is_text(mime_type: str) -> bool:
    return (
        mime_type.startswith("text/")
        or mime_type in TEXT_TYPES
        or _is_json(mime_type)
        or mime_type.endswith("+xml")
    )


def _is_json(mime_type: str) -> bool:
    return mime_type == "application/json" or mime_type.endswith("+json")


def _json(answer: Answer) -> tuple[bool, Any]:
    """Whether the body is JSON, and what it says."""
    if not _is_json(answer.mime_type):
        return False, None
    _check_size(answer)
    try:
        # What cannot be sent as data, being too deep or half a character, is sent as text.
        value = jsonable(json.loads(answer.text))
        to_text(value).encode()
    except (ValueError, RecursionError):
        return False, None
    return True, value


def _check_size(answer: Answer) -> None:
    if answer.is_cut:
        raise ToolError(
            f"The answer has more than the {get_settings().max_body_bytes} bytes that are allowed; "
            "ask for less."
        )


def _is_sign_in(answer: Answer) -> bool:
    """Whether a redirect leads to where one signs in: by the setting, or as it comes back here."""
    try:
        there = urlsplit(answer.location)
    except ValueError:
        return False
    sign_in = urlsplit(_login_url())
    if sign_in.path and (there.netloc, there.path) == (sign_in.netloc, sign_in.path):
        return True
    here = urlsplit(answer.url)
    back = (urlsplit(one) for one in parse_qs(there.query).get(REDIRECT_FIELD_NAME, ()))
    return any(one.path == here.path for one in back)


def _login_url() -> str:
    """Where the settings say that one signs in; a site may have no such page."""
    try:
        return resolve_url(django_settings.LOGIN_URL) if django_settings.LOGIN_URL else ""
    except NoReverseMatch:
        return ""
