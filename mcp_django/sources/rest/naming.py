"""What a REST view's tools are called, and what is said of them."""

from __future__ import annotations

import inspect
import re
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import override

from mcp_django.sources.rest.endpoint import Endpoint

VERBS = {
    "list": "list",
    "retrieve": "get",
    "create": "create",
    "update": "update",
    "partial_update": "update",
    "destroy": "delete",
}
SENTENCES = {
    "list": "List {plural}.",
    "retrieve": "Get one {noun}.",
    "create": "Create one {noun}.",
    "update": "Replace one {noun}; what is left out is lost.",
    "partial_update": "Change one {noun}; what is left out stays as it is.",
    "destroy": "Delete one {noun}.",
}
SUFFIXES = ("ViewSet", "APIView", "View")


def basename_of(viewset: Any, basename: str | None) -> str:
    """The base of the URL names, as a router derives it: from the model of the queryset.

    Raises:
        ImproperlyConfigured: there is none.
    """
    if basename:
        return basename
    queryset = getattr(viewset, "queryset", None)
    if queryset is None:
        raise ImproperlyConfigured(
            f"{getattr(viewset, '__qualname__', viewset)} has no queryset to name it after; write "
            "basename='…', as you do for the router."
        )
    return str(queryset.model._meta.object_name).lower()


def snake(name: str) -> str:
    """``SalesReportView`` as ``sales_report``."""
    for suffix in SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            name = name.removesuffix(suffix)
            break
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return slug(spaced)


def slug(text: str) -> str:
    """The text as part of a tool's name."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def plural_of(noun: str, model: Any) -> str:
    """Several of them: as the model's ``Meta`` says, or with an s."""
    if model is not None:
        with override(None):
            singular, plural = model._meta.verbose_name, model._meta.verbose_name_plural
            if slug(str(singular)) == noun:
                return slug(str(plural))
    return _several(noun)


def _several(words: str) -> str:
    return words if words.endswith("s") else f"{words}s"


def viewset_tool_name(endpoint: Endpoint, noun: str, plural: str) -> str:
    """``list_returns``, ``get_return``, ``approve_return``."""
    if endpoint.is_extra:
        return f"{slug(endpoint.action)}_{noun if endpoint.detail else plural}"
    return f"{VERBS[endpoint.action]}_{plural if endpoint.action == 'list' else noun}"


def api_view_tool_name(endpoint: Endpoint, noun: str, *, is_alone: bool) -> str:
    """The view's own name where it has one method; ``create_report`` and the like else."""
    if is_alone:
        return noun
    # A view may have both, and only one of them keeps what is left out.
    verb = "replace" if endpoint.action == "update" else VERBS.get(endpoint.action)
    return f"{verb or endpoint.method}_{noun}"


def description_of(endpoint: Endpoint, noun: str) -> str:
    """What the author wrote of the action, or of the view after what the action does."""
    own = _doc(endpoint.handler)
    if own and not _is_framework(endpoint.handler):
        return own
    view_class = endpoint.view_class
    # Not inspect.getdoc, which would quote what REST framework says of its base classes.
    about = "" if _is_framework(view_class) else _doc(view_class)
    words = noun.replace("_", " ")
    texts = [text for text in (_sentence(endpoint, words), about) if text]
    return "\n\n".join(texts) or f"{words.capitalize()}."


def _sentence(endpoint: Endpoint, words: str) -> str:
    plural = _several(words)
    if endpoint.model is not None:
        with override(None):
            words = str(endpoint.model._meta.verbose_name)
            plural = str(endpoint.model._meta.verbose_name_plural)
    return SENTENCES.get(endpoint.action, "").format(noun=words, plural=plural)


def _doc(documented: Any) -> str:
    return inspect.cleandoc(getattr(documented, "__doc__", None) or "")


def _is_framework(documented: Any) -> bool:
    return str(getattr(documented, "__module__", "")).startswith("rest_framework.")
