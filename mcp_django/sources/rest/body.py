"""A request body in a form that the view's parsers read."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import ImproperlyConfigured
from rest_framework.parsers import BaseParser
from rest_framework.utils.mediatypes import media_type_matches

from mcp_django.sources.rest.endpoint import Endpoint

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
ANY = "*/*"


def media_type_of(endpoint: Endpoint) -> str:
    """The media type to send, JSON where the view takes it.

    Raises:
        ImproperlyConfigured: it takes none that arguments can be written in.
    """
    parsers: list[BaseParser] = endpoint.parsers()
    for known in (JSON, FORM, MULTIPART):
        # What takes anything takes the bytes of a file.
        if any(
            media_type_matches(one.media_type, known) for one in parsers if one.media_type != ANY
        ):
            return known
    taken = ", ".join(str(parser.media_type) for parser in parsers) or "nothing"
    raise ImproperlyConfigured(
        f"{endpoint} takes {taken}, and arguments can be sent as JSON or as a form; leave it out."
    )


def encode(values: dict[str, Any], media_type: str) -> tuple[bytes, str]:
    """The body and its content type."""
    if media_type == JSON:
        return json.dumps(values, allow_nan=False).encode(), JSON
    pairs = [pair for name, value in values.items() for pair in _flat(name, value)]
    if media_type == FORM:
        return urlencode(pairs, errors="replace").encode(), FORM
    return _multipart(pairs)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """As REST framework reads nested values from a form: ``lines[0]sku``, ``address.city``."""
    if isinstance(value, dict):
        for member, inner in value.items():
            yield from _flat(f"{name}.{member}", inner)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                for member, inner in item.items():
                    yield from _flat(f"{name}[{index}]{member}", inner)
            else:
                yield from _flat(name, item)
    elif isinstance(value, bool):
        yield name, str(value).lower()
    else:
        yield name, "" if value is None else str(value)


def _multipart(pairs: list[tuple[str, str]]) -> tuple[bytes, str]:
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(name)}"\r\n\r\n{value}\r\n'
        for name, value in pairs
    ]
    text = "".join(parts) + f"--{boundary}--\r\n"
    return text.encode(errors="replace"), f"{MULTIPART}; boundary={boundary}"


def _quoted(name: str) -> str:
    """A name in a header, where a caller's own member names may stand."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
