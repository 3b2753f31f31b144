"""A view of the site as the function of a component."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from mcp_django.core.context import Context
from mcp_django.exceptions import ToolError
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.sources.site import results
from mcp_django.sources.site.answers import Answer
from mcp_django.sources.site.fresh import Sending
from mcp_django.sources.site.routes import Route
from mcp_django.sources.views.arguments import ViewArguments
from mcp_django.sources.views.calling import call
from mcp_django.sources.views.posting import FormValues
from mcp_django.sources.views.values import Values


class ViewSource:
    """A view of the site that answers calls; the functions of components are its methods."""

    def __init__(
        self,
        find: Callable[[], Sequence[Route]],
        *,
        verb: str,
        query: Values | None = None,
        make_form: Callable[[Route], FormValues | None] = lambda route: None,
        template: Sequence[str] | None = None,
        urlconf: str | None = None,
        is_readable: bool = False,
    ) -> None:
        self.arguments = ViewArguments(
            find=find,
            verb=verb,
            query=query,
            make_form=make_form,
            template=template,
            urlconf=urlconf,
        )
        self._verb = verb
        self._is_readable = is_readable

    def run_tool(self, ctx: Context, sending: Sending | None = None) -> Any:
        """Call the view as a tool."""
        return results.tool_result(self._answer(ctx, sending), is_readable=self._is_readable)

    def run_resource(self, ctx: Context, sending: Sending | None = None) -> Any:
        """Read the view as a resource."""
        return results.contents(self._answer(ctx, sending), is_readable=self._is_readable)

    def run_prompt(self, ctx: Context, sending: Sending | None = None) -> Any:
        """Have the view write a prompt."""
        return results.messages(self._answer(ctx, sending), is_readable=self._is_readable)

    def description(self) -> str:
        """The docstring of the view; Django's own views say nothing of what they are used for."""
        try:
            view = self.arguments.layout.route.view
        except ImproperlyConfigured:
            return ""
        while isinstance(view, partial):
            view = view.func
        is_django = str(getattr(view, "__module__", "")).startswith("django.")
        return "" if is_django else inspect.cleandoc(view.__doc__ or "")

    def problem(self) -> str:
        """Why no call can succeed, for the system check; empty when all is well."""
        try:
            _ = self.arguments.layout
        except ImproperlyConfigured as exc:
            return str(exc)
        return ""

    def send(self, ctx: Context, sending: Sending) -> Answer:
        """Ask the site; a form may have to look at the page first."""
        return call(ctx, sending)

    def _answer(self, ctx: Context, sending: Sending | None) -> Answer:
        # Nobody reads arguments for a fixed URI, nor where the URLconf has no such view.
        sending = sending or self.arguments.read({})
        answer = self.send(ctx, sending)
        form = self.arguments.layout.form
        if form is not None and (problems := form.problems(form_in(answer), sending.given)):
            raise ToolError(str(InvalidArguments(problems)) + results.said(answer))
        results.check(answer, verb=self._verb)
        return answer


def form_in(answer: Answer) -> Any:
    """The form that a view was left with, where it answered with a template response."""
    return answer.context.get("form") if isinstance(answer.context, Mapping) else None
