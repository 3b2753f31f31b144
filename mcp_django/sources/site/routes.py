"""Where a URL name leads: to which view, and through which variables.

The URLconf is walked when a component is first used, and never while it is being declared: the
modules that declare components are often imported by the URLconf itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.urls import ResolverMatch, URLPattern, URLResolver, get_resolver, get_urlconf, reverse
from django.utils.regex_helper import normalize

Namespaces = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One URL pattern; ``converters`` has one for each variable, ``None`` for a bare expression."""

    name: str | None
    namespaces: Namespaces
    """The instance and the application namespace of each level."""
    callback: Callable[..., Any]
    converters: Mapping[str, Any]
    required: frozenset[str]
    trouble: str
    """Why no address can be made of values, empty when one can."""
    urlconf: str | None = None
    """The URLconf that has it, where that is not the one in force."""

    @property
    def view(self) -> Any:
        """The class of a class-based view, the function otherwise."""
        found = getattr(self.callback, "view_class", None) or getattr(self.callback, "cls", None)
        return found or self.callback

    @property
    def full_name(self) -> str:
        """The name as ``reverse`` takes it."""
        return ":".join((*(instance for instance, _ in self.namespaces), self.name or ""))

    def is_called(self, name: str) -> bool:
        """Whether ``reverse`` could mean this pattern by a name."""
        *spaces, last = name.split(":")
        if last != self.name or len(spaces) != len(self.namespaces):
            return False
        pairs = zip(spaces, self.namespaces, strict=True)
        return all(space in known for space, known in pairs)

    def leads_to(self, match: ResolverMatch) -> bool:
        """Whether an address was resolved to this pattern, or to the one of its name elsewhere.

        A middleware may choose another URLconf for a request.
        """
        return match.func is self.callback or match.view_name == self.full_name

    def url(self, values: Mapping[str, Any]) -> str:
        """The path for these values.

        Raises:
            NoReverseMatch: they do not fit.
        """
        target = self.full_name if self.name else self.callback
        return reverse(target, urlconf=self.urlconf, kwargs=dict(values))


def resolver_of(urlconf: str | None) -> URLResolver:
    """A URLconf by name, or the one in force: the site's, or that of the MCP request's host."""
    return get_resolver(urlconf or get_urlconf())


def routes(urlconf: str | None = None) -> Iterator[Route]:
    """Every pattern of the URLconf that leads to a view."""
    try:
        patterns = resolver_of(urlconf).url_patterns
    except ModuleNotFoundError as exc:
        if urlconf is None:
            raise
        raise ImproperlyConfigured(f"There is no URLconf {urlconf!r} ({exc}).") from exc
    for one in _walk(patterns, _Level()):
        yield replace(one, urlconf=urlconf)


def routes_called(name: str, urlconf: str | None = None) -> list[Route]:
    """The patterns of a URL name.

    Raises:
        ImproperlyConfigured: there is none; the message has the nearest name.
    """
    every = list(routes(urlconf))
    found = [one for one in every if one.is_called(name)]
    if not found:
        raise ImproperlyConfigured(f"There is no URL named {name!r}; {_hint(name, every)}")
    # The namespace of an application means the instance of its own name, or the first one.
    chosen = name if any(one.full_name == name for one in found) else found[0].full_name
    return [one for one in found if one.full_name == chosen]


def routes_of(view_class: type[Any], urlconf: str | None = None) -> list[Route]:
    """The patterns that lead to a class-based view and can be reversed.

    Raises:
        ImproperlyConfigured: there is none, or more than one name.
    """
    found = [
        one
        for one in routes(urlconf)
        if one.view is view_class and (one.name or not one.namespaces)
    ]
    if not found:
        raise ImproperlyConfigured(
            f"No URL leads to {view_class.__qualname__}; give it a path with a name in the URLconf."
        )
    names = sorted({one.full_name for one in found})
    if len(names) > 1:
        raise ImproperlyConfigured(
            f"{view_class.__qualname__} has several URLs; register one of their names: "
            f"{', '.join(map(repr, names))}."
        )
    return found


@dataclass(frozen=True, slots=True)
class _Level:
    """What the levels of the URLconf down to a pattern have given so far."""

    namespaces: Namespaces = ()
    converters: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    trouble: str = ""


def _walk(patterns: Iterable[Any], above: _Level) -> Iterator[Route]:
    for one in patterns:
        found = _below(above, one.pattern)
        if isinstance(one, URLResolver):
            space = ((one.namespace, one.app_name or ""),) if one.namespace else ()
            inside = replace(found, namespaces=(*above.namespaces, *space))
            yield from _walk(one.url_patterns, inside)
        elif isinstance(one, URLPattern):
            yield Route(
                name=one.name,
                namespaces=found.namespaces,
                callback=one.callback,
                converters=found.converters,
                required=found.required,
                trouble=found.trouble,
            )


def _below(above: _Level, pattern: Any) -> _Level:
    """Add the variables of one level, which Django knows from the ways to write it backwards."""
    regex = pattern.regex
    ways = [set(names) for _, names in normalize(regex.pattern)]
    names = set().union(*ways)
    trouble = ""
    if names and all(map(_is_unnamed, names)):
        trouble = "has groups without names; name them as in (?P<year>[0-9]{4})"
    elif not names.issuperset(regex.groupindex):
        trouble = "has alternatives (|) that Django cannot write backwards; make paths of them"
    ordered = [name for name in (*pattern.converters, *regex.groupindex) if name in names]
    converters = {name: pattern.converters.get(name) for name in ordered}
    return replace(
        above,
        converters={**above.converters, **converters},
        required=above.required | set.intersection(*ways).intersection(converters),
        trouble=above.trouble or trouble,
    )


def _is_unnamed(name: str) -> bool:
    """Whether Django made the name up for a group without one."""
    return name.startswith("_") and name[1:].isdigit()


def _hint(name: str, every: Iterable[Route]) -> str:
    names = sorted({one.full_name for one in every if one.name})
    nearest = difflib.get_close_matches(name, names, n=1)
    # Without its namespace a name is far from itself.
    nearest = nearest or [one for one in names if one.rpartition(":")[2] == name]
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    return f"the URLconf has {', '.join(map(repr, names[:20])) or 'none'}."
