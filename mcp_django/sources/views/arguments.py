"""The arguments of a view: the variables of its URL, its query and its form, side by side.

What they are is found out when somebody asks, since the URLconf is loaded after the declarations.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, URLResolver

from mcp_django.schema.arguments import MAX_KEPT_PROBLEMS, InvalidArguments, Problem
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import decode_arguments, drop_nulls, unknown_members
from mcp_django.sources.site.fresh import Sending
from mcp_django.sources.site.routes import Route, resolver_of
from mcp_django.sources.views.posting import FormValues
from mcp_django.sources.views.values import TypedValues, Values, variables

logger = logging.getLogger("mcp_django")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a call is made of, once the URLconf is known."""

    routes: Sequence[Route]
    variables: TypedValues
    names: Mapping[str, str]
    """From the argument to the variable of the URL that it fills."""
    query: Values | None
    form: FormValues | None
    json_schema: Schema

    @property
    def route(self) -> Route:
        """The first pattern of the name; they all lead to what is meant."""
        return self.routes[0]


class ViewArguments:
    """Reads the arguments of a call to a view.

    ``template`` has the variables of a resource's URI; ``None`` where there is no URI, and any
    argument can be given.
    """

    def __init__(
        self,
        *,
        find: Callable[[], Sequence[Route]],
        verb: str,
        query: Values | None,
        make_form: Callable[[Route], FormValues | None],
        template: Sequence[str] | None,
        urlconf: str | None = None,
    ) -> None:
        self._urlconf = urlconf
        self._find = find
        self._verb = verb
        self._query = query
        self._make_form = make_form
        self._template = template
        self._layouts: WeakKeyDictionary[URLResolver, Layout] = WeakKeyDictionary()
        self.is_published = False
        """Whether the declaration is over, so that a look at the URLconf does no harm."""

    @property
    def json_schema(self) -> Schema:
        """The schema to publish; without a URLconf, that of what was declared beside it."""
        if not (self.is_published and apps.ready):
            return self._declared()
        try:
            return self.layout.json_schema
        except ImproperlyConfigured as exc:
            # One broken component must not take the list with it; the system check says the same.
            logger.error("%s", exc)  # noqa: TRY400 - the sentence says it all
            return self._declared()

    @property
    def layout(self) -> Layout:
        """What a call is made of.

        Raises:
            ImproperlyConfigured: the URLconf has no such view, or not with these variables.
        """
        resolver = resolver_of(self._urlconf)
        found = self._layouts.get(resolver)
        if found is None:
            found = self._layouts[resolver] = self._lay_out()
        return found

    @property
    def files(self) -> frozenset[str]:
        """The fields of the form that no argument fills, since JSON carries no files.

        Raises:
            ImproperlyConfigured: the URLconf has no such view, or not with these variables.
        """
        form = self.layout.form
        return form.files if form is not None else frozenset()

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return what to send to the site, under the name ``sending``.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        try:
            _ = self.layout
        except ImproperlyConfigured:
            # The call itself fails with it, and that is logged as the bug which it is.
            return {}
        return {"sending": self.read(decode_arguments(raw))}

    def read(self, arguments: dict[str, Any]) -> Sending:
        """Return what to send to the site.

        Raises:
            InvalidArguments: the model can repair the call.
            ImproperlyConfigured: the site has no such view.
        """
        layout = self.layout
        shape = layout.json_schema
        known = _without_nulls(drop_nulls(arguments, shape, shape), shape)
        problems = [*islice(unknown_members(known, shape), MAX_KEPT_PROBLEMS)]
        values = _attempt(layout.variables, layout.variables.read, known, problems) or {}
        query, body = (
            _attempt(part, part.pairs, known, problems) or [] if part is not None else []
            for part in (layout.query, layout.form)
        )
        if problems:
            raise InvalidArguments(problems)
        return Sending(
            verb=self._verb,
            path=_path(layout.route, {layout.names[name]: one for name, one in values.items()}),
            query=query,
            body=body,
            routes=layout.routes,
            given=known,
        )

    def _declared(self) -> Schema:
        parts = [part.json_schema for part in (self._query,) if part is not None]
        named = {name: {"type": "string"} for name in self._template or ()}
        return _merged([{"properties": named}, *parts])

    def _lay_out(self) -> Layout:
        routes = self._find()
        for route in routes:
            _check_route(route)
        form = self._make_form(routes[0]) if self._verb == "POST" else None
        others = [part for part in (self._query, form) if part is not None]
        taken = {name for part in others for name in part.json_schema["properties"]}
        found = {name: one for route in routes for name, one in route.converters.items()}
        # A form may ask for a new slug of what the slug in the URL names.
        names = {f"url_{name}" if name in taken else name: name for name in found}
        required = frozenset.intersection(*(route.required for route in routes))
        path = variables(
            {argument: found[name] for argument, name in names.items()},
            required=[argument for argument, name in names.items() if name in required],
        )
        schema = _merged([path.json_schema, *(part.json_schema for part in others)])
        self._check_template(schema)
        return Layout(
            routes=routes,
            variables=path,
            names=names,
            query=self._query,
            form=form,
            json_schema=schema,
        )

    def _check_template(self, schema: Schema) -> None:
        if self._template is None:
            return
        properties = schema["properties"]
        for name in self._template:
            if name not in properties:
                nearest = difflib.get_close_matches(name, properties, n=1)
                hint = f"did you mean {nearest[0]!r}?" if nearest else "take it out of the URI."
                raise ImproperlyConfigured(f"The URL has no variable {name!r}; {hint}")
        for name in schema.get("required", ()):
            if name not in self._template:
                raise ImproperlyConfigured(
                    f"The URL needs {name!r}, which the URI does not have; add {{{name}}} to it."
                )


def _without_nulls(arguments: Mapping[str, Any], shape: Schema) -> dict[str, Any]:
    """What is left out, as ``null`` says it: a field that takes anything would be lost by it."""
    optional = shape["properties"].keys() - shape.get("required", ())
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name not in optional
    }


def _attempt(
    part: Values,
    read: Callable[[dict[str, Any]], T],
    arguments: Mapping[str, Any],
    problems: list[Problem],
) -> T | None:
    """Read those of the arguments that belong to a part, or keep what is wrong with them."""
    own = part.json_schema["properties"]
    try:
        return read({name: value for name, value in arguments.items() if name in own})
    except InvalidArguments as exc:
        problems.extend(exc.problems)
        return None


def _check_route(route: Route) -> None:
    if route.trouble:
        raise ImproperlyConfigured(f"The URL {route.full_name!r} {route.trouble}.")
    if hasattr(route.callback, "mcp_server"):
        raise ImproperlyConfigured(
            f"The URL {route.full_name!r} is an MCP endpoint, and cannot be called through itself."
        )


def _path(route: Route, values: Mapping[str, Any]) -> str:
    try:
        return route.url(values)
    except NoReverseMatch:
        names = ", ".join(values) or "no values"
        problem = Problem(path="", message=f"there is no such address for {names}")
        raise InvalidArguments([problem]) from None


def _merged(schemas: Sequence[Schema]) -> Schema:
    properties = {
        name: schema for one in schemas for name, schema in one.get("properties", {}).items()
    }
    required = [name for one in schemas for name in one.get("required", ())]
    more = {"required": required} if required else {}
    return {"type": "object", "properties": properties, **more, "additionalProperties": False}
