"""``RegisteringViews``: how a server takes views and forms of the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from django.core.exceptions import ImproperlyConfigured

from mcp_django.core.registry import Registry
from mcp_django.protocol.content import Icon

if TYPE_CHECKING:
    from django.forms import BaseForm
    from django.views import View

    from mcp_django.sources.models.form_tools import Rows


class RegisteringViews(Registry):
    """A registry that takes views and forms."""

    def register_view(
        self,
        url_name: str,
        /,
        *,
        uri: str | None = None,
        kind: Literal["tool", "resource", "prompt"] | None = None,
        method: Literal["get", "post"] = "get",
        query: Mapping[str, Any] | type[BaseForm] | None = None,
        form: type[BaseForm] | None = None,
        readable: bool = False,
        urlconf: str | None = None,
        name: str | None = None,
        title: str = "",
        description: str = "",
        permission: Any = None,
        scopes: Sequence[str] = (),
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
    ) -> None:
        """Offer the view of a URL name: as a resource with ``uri``, as a read-only tool without.

        The site's own middleware and view answer a fresh request of the caller. The variables of
        the URL are arguments; ``query`` adds those of the address (types by name, or a form), and
        ``form`` those that are posted (``method="post"``). ``readable`` makes text of HTML.
        ``urlconf`` is where the name is, when a middleware gives some hosts URLs of their own.

        Raises:
            AlreadyRegistered: a component of this name is offered.
            ImproperlyConfigured: the declaration cannot work. Whether the URLconf has such a name
                is said by the system check, as it is loaded later.
        """
        from mcp_django.sources.views.view import view_component

        options = {
            "name": name,
            "title": title,
            "description": description,
            "permission": permission,
            "scopes": scopes,
            "icons": icons,
            "meta": meta or {},
            "timeout": timeout,
            "destructive": destructive,
            "idempotent": idempotent,
        }
        self.add(
            view_component(
                url_name,
                uri=uri,
                kind=kind,
                method=method,
                query=query,
                form=form,
                readable=readable,
                urlconf=urlconf,
                options=options,
            )
        )

    def register_form(
        self,
        target: type[View | BaseForm] | str,
        /,
        *,
        instance: str | None = None,
        queryset: Rows | None = None,
        form: type[BaseForm] | None = None,
        query: Mapping[str, Any] | None = None,
        urlconf: str | None = None,
        name: str | None = None,
        title: str = "",
        description: str = "",
        permission: Any = None,
        scopes: Sequence[str] = (),
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
    ) -> None:
        """Offer a form as a tool: that of a view, or a model form by itself.

        A FormView, CreateView, UpdateView or DeleteView is named by its class or its URL, and its
        form is posted to it; give ``form`` where the view chooses its form by the request.

        A model form creates. With ``instance``, the name of a unique field, it changes the object
        that a caller names by it; ``queryset`` says which rows it may, as a query or a function of
        the context. Without ``permission`` it asks for Django's to add, or to change.

        Raises:
            AlreadyRegistered: a tool of this name is offered.
            ImproperlyConfigured: the view has no form, or the options are those of the other kind.
        """
        from django.forms import BaseForm

        from mcp_django.sources.models.form_tools import form_tool
        from mcp_django.sources.views.form import form_component

        of_view = {"form": form, "query": query, "urlconf": urlconf}
        of_form = {"instance": instance, "queryset": queryset}
        is_form = isinstance(target, type) and issubclass(target, BaseForm)
        _refuse_other_kind(target, of_view if is_form else of_form, is_form=is_form)
        options = {
            "name": name,
            "title": title,
            "description": description,
            "permission": permission,
            "scopes": scopes,
            "icons": icons,
            "meta": meta or {},
            "timeout": timeout,
            "destructive": destructive,
            "idempotent": idempotent,
        }
        if isinstance(target, type) and issubclass(target, BaseForm):
            self.add(form_tool(target, server=self, **of_form, options=options))
            return
        self.add(form_component(target, form=form, query=query, urlconf=urlconf, options=options))


def _refuse_other_kind(target: Any, others: Mapping[str, Any], *, is_form: bool) -> None:
    """Refuse options that say nothing of what is registered."""
    found = [name for name, value in others.items() if value is not None]
    if found:
        name = getattr(target, "__name__", target)
        kind, other = ("form", "view") if is_form else ("view", "model form")
        raise ImproperlyConfigured(
            f"register_form({name}): {', '.join(found)} is for a {other}, and this is a {kind}; "
            "register the one that is meant."
        )
