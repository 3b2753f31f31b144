"""URI validation, and URI templates that can also be matched (RFC 3986, RFC 6570).

RFC 6570 and its Python libraries define only expansion. Extracting the values from a URI needs a
subset in which that is unambiguous: `{var}` for one path segment or a part of it, one `{+path}` for
several segments, and `{?a,b}` at the end for an optional query. Matching takes time linear in the
length of the URI for every template, so it does not use a backtracking regular expression. This
module does no I/O; code that opens a file must handle symbolic links.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from mcp_django.protocol.text import clip

MAX_URI_LENGTH = 8192

_ENCODED = r"%[0-9A-Fa-f]{2}"
# All repetitions are possessive, since the text after each cannot begin with a repeated character:
# every character is examined a bounded number of times.
_PLAIN = r"A-Za-z0-9._~!$&'()*+,;="
_URI = re.compile(
    rf"""
    [A-Za-z][A-Za-z0-9+.-]*+:
    (?://                                                           # an authority, or
        (?:(?:[{_PLAIN}:-]++|{_ENCODED})*+@)?
        (?:\[[0-9A-Fa-fvV.:]++\]|(?:[{_PLAIN}-]++|{_ENCODED})*+)
        (?::[0-9]*+)?
        (?=[/?\#]|\Z)
    |   (?!//)                                                      # no two slashes
    )
    (?:[{_PLAIN}:@/-]++|{_ENCODED})*+
    (?:\?(?:[{_PLAIN}:@/?-]++|{_ENCODED})*+)?
    (?:\#(?:[{_PLAIN}:@/?-]++|{_ENCODED})*+)?
    """,
    re.VERBOSE,
)
_LITERAL = re.compile(rf"(?:[A-Za-z0-9._~:/?\#\[\]@!$&'()*+,;=-]|{_ENCODED})*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUERY = re.compile(r"\{\?([^{}]*)\}$")
_QUERY_DELIMITER = re.compile(r"[?#]")
_DELIMITER = re.compile(r"[/?#]")
_ENCODED_AGAIN = re.compile(r"%(?:25)*(?:2e|2f|5c)", re.IGNORECASE)
_SEPARATOR = re.compile(r"[/\\]")
_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:[/\\]")

# Not percent-encoded when a path is expanded. ":" and "@" are encoded, since the path may start in
# the place of an authority.
_PATH_SAFE = "/!$&'()*+,;="


def lower_scheme(uri: str) -> str:
    """Return a URI, or the template of one, with its scheme in lower case.

    Schemes are compared without case, and URI libraries of clients write them in lower case (RFC
    3986, section 3.1).
    """
    scheme, _, rest = uri.partition(":")
    if scheme.islower() or not _SCHEME.match(uri):
        return uri
    return f"{scheme.lower()}:{rest}"


def check_uri(uri: str) -> None:
    """Reject text that is not a URI as defined by RFC 3986.

    Raises:
        ValueError: the text is not a URI; the message contains it and says why.
    """
    if len(uri) > MAX_URI_LENGTH:
        raise ValueError(f"A URI must have at most {MAX_URI_LENGTH} characters, not {len(uri)}")
    if not _URI.fullmatch(uri):
        raise ValueError(
            f"{clip(repr(uri))} is not a URI: it needs a scheme, and characters that RFC 3986 "
            "does not allow must be percent-encoded"
        )


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    is_path: bool

    def accepts(self, text: str) -> bool:
        return bool(text) and (self.is_path or not _DELIMITER.search(text))


class URITemplate:
    """A compiled URI template, which can be expanded and matched.

    With ``is_lookup``, values are only compared with the database and never joined to a path, so
    they may contain any (encoded) slash. The scheme is stored in lower case, and matches in any
    case.

    Raises:
        ValueError: the template is not valid; the message names the expression or the rule.
    """

    def __init__(self, template: str, *, is_lookup: bool = False) -> None:
        self.template = template = lower_scheme(template)
        self.is_lookup = is_lookup
        path = template
        self._query: tuple[str, ...] = ()
        if match := _QUERY.search(template):
            path, self._query = template[: match.start()], tuple(match[1].split(","))
            if not all(map(_VARIABLE.fullmatch, self._query)):
                raise self._unsupported(match[0])
        self._literals = tuple(_EXPRESSION.split(path)[::2])
        expressions = _EXPRESSION.findall(path)
        for expression in expressions:
            if not _VARIABLE.fullmatch(expression.removeprefix("+")):
                raise self._unsupported(f"{{{expression}}}")
        self._path = tuple(
            _Variable(expression.removeprefix("+"), expression.startswith("+"))
            for expression in expressions
        )
        self.variables: tuple[str, ...] = (*(v.name for v in self._path), *self._query)
        self._is_file = template.startswith("file:")
        self._scheme = f"{template.partition(':')[0]}:"
        self._check()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.template!r})"

    @property
    def specificity(self) -> tuple[int, int, int]:
        """Return a sort key that is greater for a more specific template."""
        literal = sum(map(len, self._literals))
        paths = sum(variable.is_path for variable in self._path)
        return literal, -paths, -len(self.variables)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in `uri`, or `None` if it does not match.

        Values are percent-decoded once. An absent query variable is omitted. A URI does not match
        if a value could lead outside of the template's location (path traversal).
        """
        if len(uri) > MAX_URI_LENGTH:
            return None
        if not uri.startswith(self._scheme):
            uri = lower_scheme(uri)
        path, _, query = uri.partition("?") if self._query else (uri, "", "")
        decoded, texts = _decode(path), self._match_path(path)
        # A value and the literal next to it can also combine to "..".
        if decoded is None or texts is None or _has_parent_segment(decoded):
            return None
        values: dict[str, str] = {}
        for variable, before, text in zip(self._path, self._literals, texts, strict=False):
            value = _decode(text)
            if value is None or self._is_unsafe(variable, before, value):
                return None
            values[variable.name] = value
        for pair in filter(None, query.split("&")):
            name, _, text = pair.partition("=")
            value = _decode(text)
            if name not in self._query or name in values or value is None or "#" in text:
                return None
            values[name] = value
        return values

    def expand(self, values: Mapping[str, str]) -> str:
        """Return the URI for `values`; matching it returns the same values.

        Raises:
            ValueError: a value is missing, empty, ambiguous or unsafe.
        """
        uri = self._literals[0]
        for variable, literal in zip(self._path, self._literals[1:], strict=True):
            value = values.get(variable.name)
            if not value:
                raise self._error(f"{variable.name} is missing or empty")
            uri += quote(value, safe=_PATH_SAFE if variable.is_path else "") + literal
        query = [f"{name}={quote(values[name], safe='')}" for name in self._query if name in values]
        if query:
            uri += f"?{'&'.join(query)}"
        if self.match(uri) != {name: values[name] for name in self.variables if name in values}:
            raise self._error(f"matching {clip(uri)!r} would not return the same values")
        return uri

    def _check(self) -> None:
        if len(set(self.variables)) < len(self.variables):
            raise self._error("a variable occurs more than once")
        for literal in self._literals:
            if not _LITERAL.fullmatch(literal):
                raise self._error(f"{clip(literal)!r} must be percent-encoded")
            if self._query and _QUERY_DELIMITER.search(literal):
                raise self._error("{?…} cannot follow a query or a fragment")
        if not _SCHEME.match(self._literals[0]):
            raise self._error("it must start with a scheme, as in shop://orders/{number}")
        if "" in self._literals[1:-1]:
            raise self._error("two variables need a literal between them")
        if sum(variable.is_path for variable in self._path) > 1:
            raise self._error("only one variable can be a {+path}")

    def _unsupported(self, expression: str) -> ValueError:
        return self._error(f"{clip(expression)} is not supported; use {{var}}, {{+path}}, {{?a,b}}")

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"URI template {clip(repr(self.template))}: {problem}")

    def _match_path(self, path: str) -> list[str] | None:
        """Return the text of each variable in the path, still percent-encoded."""
        first, *separators, last = self._literals if self._path else (*self._literals, "")
        rest = path.removeprefix(first)
        if rest == path or not rest.endswith(last):
            return None
        rest = rest[: len(rest) - len(last)]
        if not self._path:
            return None if rest else []
        texts = self._split(rest, separators)
        fit = texts and all(v.accepts(text) for v, text in zip(self._path, texts, strict=True))
        return texts if fit else None

    def _split(self, rest: str, separators: list[str]) -> list[str] | None:
        # Text before the {+path} is split at the first matching separator, text after it at the
        # last one, so the path is as long as possible and nothing is tried twice.
        at_path = next((i for i, v in enumerate(self._path) if v.is_path), len(separators))
        before: list[str] = []
        for separator in separators[:at_path]:
            at = rest.find(separator, 1)
            if at < 0:
                return None
            before.append(rest[:at])
            rest = rest[at + len(separator) :]
        after: list[str] = []
        for separator in reversed(separators[at_path:]):
            at = rest.rfind(separator, 1, max(len(rest) - 1, 0))
            if at < 0:
                return None
            after.append(rest[at + len(separator) :])
            rest = rest[:at]
        return [*before, rest, *reversed(after)]

    def _is_unsafe(self, variable: _Variable, before: str, value: str) -> bool:
        # This applies to every scheme, since authors join such values to directories and URLs.
        if _has_parent_segment(value):
            return True
        if self._is_file and ("\\" in value or _ENCODED_AGAIN.search(value)):
            return True
        if self.is_lookup and not self._is_file:
            return False
        if not variable.is_path:
            return bool(_SEPARATOR.search(value))
        # After file://, paths are absolute by definition (RFC 8089).
        return bool(_ABSOLUTE.match(value)) and before.lower() != "file://"


def _has_parent_segment(path: str) -> bool:
    return ".." in map(str.strip, _SEPARATOR.split(path))


def _decode(text: str) -> str | None:
    try:
        value = unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None
    return None if "\0" in value else value
