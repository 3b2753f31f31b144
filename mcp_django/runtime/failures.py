"""What an exception of the developer's function means to the client.

Django's exceptions keep the meaning that they have in a view. Everything else is a bug: logged
with its traceback, answered with a neutral sentence (ERR-5).
"""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from django.core.exceptions import (
    ObjectDoesNotExist,
    PermissionDenied,
    SuspiciousOperation,
    ValidationError,
)
from django.http import Http404

from mcp_django.core.component import Completion, Component, Prompt
from mcp_django.core.resource import ReadableComponent
from mcp_django.core.tool import Tool
from mcp_django.exceptions import (
    AccessRefused,
    ElicitationDeclined,
    InputRequired,
    InternalError,
    InvalidParams,
    MCPError,
    MissingCapability,
    ResourceNotFound,
    ToolError,
)
from mcp_django.protocol.revisions import Revision
from mcp_django.runtime.governor.spending import WriteRefused
from mcp_django.runtime.results import tool_error
from mcp_django.signals import component_failed

logger = logging.getLogger("mcp_django")

MISSING = (Http404, ObjectDoesNotExist)


class CallAborted(Exception):
    """The function wanted to end the process or the task: a bug like any other."""


class CallTimedOut(Exception):
    """The call took longer than its time limit; its thread may still be at it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"took longer than {seconds:g} seconds")
        self.seconds = seconds


def failure_in(exc: BaseException) -> Exception:
    """What failed, inside a group of exceptions or not.

    Raises:
        InputRequired: nothing did; tasks of a group asked something.
    """
    if isinstance(exc, BaseExceptionGroup):
        asked, rest = exc.split(InputRequired)
        if asked is not None and rest is None:
            raise InputRequired from exc
    return aborted(exc)


def aborted(exc: BaseException) -> CallAborted:
    """An end that would take more than the call with it, as a failure of the call alone."""
    failure = CallAborted(f"ended with {type(exc).__name__}")
    failure.__cause__ = exc
    return failure


def tool_failure(tool: Tool, revision: Revision, exc: Exception) -> dict[str, Any]:
    """A failed tool answers in-band, so that the model can try something else (TOOL-10)."""
    if isinstance(exc, MissingCapability) and not revision.stateless:
        # There is no such code before 2026-07-28 (VER-18).
        return tool_error(exc.message)
    if isinstance(exc, MCPError) and not isinstance(exc, ResourceNotFound):
        raise exc
    return tool_error(_sentence(tool, exc) or _bug(tool, exc))


def resource_failure(component: ReadableComponent, uri: str, exc: Exception) -> NoReturn:
    """A resource that cannot be read is an error; missing and forbidden look the same."""
    if isinstance(exc, MCPError):
        raise exc
    if isinstance(exc, (*MISSING, PermissionDenied)):
        raise ResourceNotFound(
            "Resource not found; see resources/list and resources/templates/list.",
            data={"uri": uri},
        ) from exc
    _refuse(component, exc)


def prompt_failure(prompt: Prompt, exc: Exception) -> NoReturn:
    """A prompt that cannot be written is an error of its arguments, or ours."""
    if isinstance(exc, MCPError):
        raise exc
    _refuse(prompt, exc)


def list_failure(component: Component, exc: Exception) -> NoReturn:
    """A list that cannot be made is an error, since a shorter one would look whole."""
    if isinstance(exc, MCPError):
        raise exc
    _refuse(component, exc)


def completion_failure(completion: Completion, exc: Exception) -> dict[str, Any]:
    """Suggestions are a convenience: what fails has none, and the log says why."""
    # A completion can ask nobody, whatever the client declared: that is the function's mistake.
    if isinstance(exc, MCPError) and not isinstance(exc, MissingCapability):
        raise exc
    if not isinstance(exc, (*MISSING, PermissionDenied, ValidationError, ToolError)):
        logger.error("The completion of %s failed.", completion.key, exc_info=exc)
    return {"completion": {"values": []}}


def _refuse(component: Component, exc: Exception) -> NoReturn:
    sentence = _sentence(component, exc)
    if sentence is None:
        raise InternalError(_bug(component, exc)) from exc
    if isinstance(exc, CallTimedOut):
        raise InternalError(sentence) from exc
    raise InvalidParams(sentence) from exc


def _sentence(component: Component, exc: Exception) -> str | None:
    """What to tell the model, ``None`` for a bug."""
    if isinstance(exc, (ToolError, AccessRefused, ElicitationDeclined)):
        return str(exc)
    if isinstance(exc, ResourceNotFound):
        # Read by the component itself, on behalf of its caller.
        return f"{exc.message} (URI: {dict(exc.data or {}).get('uri', '')})"
    if isinstance(exc, CallTimedOut):
        return f"{component} {exc}. Ask for less, or try again later."
    if isinstance(exc, ValidationError):
        return _validation_text(exc)
    if isinstance(exc, MISSING):
        return str(exc) or "Not found."
    if isinstance(exc, PermissionDenied):
        return str(exc) or "You may not do this."
    if isinstance(exc, SuspiciousOperation):
        logger.warning("%s refused a suspicious request: %s", component, exc)
        return "The request was refused."
    return None


def _validation_text(exc: ValidationError) -> str:
    if not hasattr(exc, "error_dict"):
        return " ".join(exc.messages)
    return "\n".join(f"{name}: {' '.join(texts)}" for name, texts in exc.message_dict.items())


def _bug(component: Component, exc: Exception) -> str:
    logger.error("%s failed.", component, exc_info=exc)
    component_failed.send(sender=type(component), component=component, exception=exc)
    if isinstance(exc, WriteRefused):
        return exc.told
    return f"{component} failed for a reason that is no fault of the request; it was logged."
