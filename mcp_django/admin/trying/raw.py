"""The JSON-RPC messages of a round, for being shown: what is long is cut, what is secret hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from mcp_django.admin.trying.answers import indented
from mcp_django.admin.trying.trials import Trial
from mcp_django.schema.secrets import is_secret
from mcp_django.schema.structure import Path

MAX_TEXT = 2000
MAX_MEMBERS = 200
# Deeper than any answer in good faith.
MAX_DEPTH = 80
HIDDEN = "•••"


def shown_params(trial: Trial, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a request as they are shown: without secrets, and cut where it is long."""
    # Cut first: what is not shown needs no look.
    shown: dict[str, Any] = shortened(params)
    if isinstance(arguments := shown.get("arguments"), Mapping):
        shown["arguments"] = _masked(arguments, (), _hides(trial))
    return shown


def without_secrets(trial: Trial, values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for a form that is filled in anew: who typed a secret types it again."""
    found: dict[str, Any] = _left(values, (), _hides(trial))
    return found


def _hides(trial: Trial) -> Callable[[Path], bool]:
    return partial(is_secret, trial.schema, sensitive=trial.component.sensitive)


def _left(value: Any, path: Path, hides: Callable[[Path], bool]) -> Any:
    if isinstance(value, Mapping):
        inner = {name: (*path, name) for name in value}
        return {name: _left(value[name], at, hides) for name, at in inner.items() if not hides(at)}
    if isinstance(value, list):
        inner_items = [((*path, n), one) for n, one in enumerate(value)]
        return [_left(one, at, hides) for at, one in inner_items if not hides(at)]
    return value


def _masked(value: Any, path: Path, hides: Callable[[Path], bool]) -> Any:
    """A value without its secrets."""
    if path and hides(path):
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: _masked(one, (*path, name), hides) for name, one in value.items()}
    if isinstance(value, list):
        return [_masked(one, (*path, n), hides) for n, one in enumerate(value)]
    return value


def shown_arguments(trial: Trial, params: Mapping[str, Any]) -> str:
    """The arguments of a request as somebody confirms them."""
    shown = shown_params(trial, params)
    return indented(shown.get("arguments", {}))


def shown_exchanges(trial: Trial, exchanges: Iterable[tuple[Any, Any]]) -> list[list[str]]:
    """Requests with their responses as text."""
    return [
        [
            indented({**request, "params": shown_params(trial, request["params"])}),
            indented(shortened(response)),
        ]
        for request, response in exchanges
    ]


def shortened(value: Any, depth: int = 0) -> Any:
    """A JSON value with long texts and lists cut."""
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"{value[:MAX_TEXT]}… ({len(value)})"
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, list):
        cut = [shortened(one, depth + 1) for one in value[:MAX_MEMBERS]]
        return cut if len(value) <= MAX_MEMBERS else [*cut, f"… ({len(value)})"]
    if isinstance(value, Mapping):
        found = {key: shortened(one, depth + 1) for key, one in list(value.items())[:MAX_MEMBERS]}
        return found if len(value) <= MAX_MEMBERS else {**found, "…": f"({len(value)})"}
    return value
