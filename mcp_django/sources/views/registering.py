"""``RegisteringViews``: how a server takes views and forms of the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mcp_django.protocol.content import Icon
from mcp_django.registry import Registry

if TYPE_CHECKING:
    from django.forms import BaseForm
    from django.views import View


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
        view: type[View] | str,
        /,
        *,
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
        """Offer a FormView, CreateView, UpdateView or DeleteView as a tool that posts its form.

        ``view`` is the class, or the name of its URL. Give ``form`` where the view chooses its
        form by the request.

        Raises:
            AlreadyRegistered: a tool of this name is offered.
            ImproperlyConfigured: the view has no form.
        """
        from mcp_django.sources.views.form import form_component

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
        self.add(form_component(view, form=form, query=query, urlconf=urlconf, options=options))
