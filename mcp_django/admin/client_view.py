"""The page "What a client sees": the lists of one server for any user, client and revision.

The lists come from the same handlers that serve clients, over an in-memory connection. The reasons
why a component is hidden come from the policy that hides it. The only code of the site that runs is
its permissions: the rows that another user may see are not fetched.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from django import forms
from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.utils.translation import gettext as _, gettext_lazy

from mcp_django import __version__
from mcp_django.admin.base import KIND_TITLES, ServerPageRequest, has_all_words, server_page
from mcp_django.auth.endpoints import all_resources
from mcp_django.auth.principal import (
    Principal,
    anonymous_principal,
    find_user_by_name,
    key_of,
    missing_scopes,
    principal_for,
)
from mcp_django.components.catalog import Server
from mcp_django.components.component import Component
from mcp_django.components.tool import Tool
from mcp_django.conf import get_settings
from mcp_django.execution.call import Call
from mcp_django.execution.handlers.entries import estimate_tokens
from mcp_django.execution.handlers.resources import FIXED_SECTION, ResourceListing, may_list_entries
from mcp_django.execution.policy import explain, explain_connection
from mcp_django.execution.results import encode_response
from mcp_django.models import PromptText
from mcp_django.protocol.revisions import LATEST, REVISIONS, Revision
from mcp_django.server import MCPServer
from mcp_django.tenants import of_tenant
from mcp_django.transports.memory import LocalClient


@server_page(
    "client_view", slug="seen", title=gettext_lazy("What a client sees"), permission="view_server"
)
def client_view_page(page_request: ServerPageRequest) -> HttpResponseBase:
    """Show the form and the lists for its choices; log a view as another user in the history."""
    request = page_request.request
    me: Any = request.user
    # Checked first: the answer must not depend on whether that user exists.
    if request.GET.get("who") == ANOTHER and not me.has_perm(AS_ANOTHER):
        raise PermissionDenied
    form = PerspectiveForm(request, page_request.server)
    context: dict[str, Any] = {"form": form, "clients": form.suggested_clients()}
    if form.is_valid():
        perspective = form.perspective()
        if perspective.other_user:
            # Logged before anything is shown: the page reveals what another user may do.
            text = _("Viewed what clients of the user “%(user)s” see.")
            message = text % {"user": perspective.other_user}
            LogEntry.objects.log_actions(
                me.pk, [page_request.row], CHANGE, message, single_object=True
            )
        context |= {"perspective": perspective}
        context |= _page_of(client_view_of(page_request.server, perspective), request.GET)
    return page_request.render("client_view", **context)


PAGE_SIZE = 100


def _page_of(client_view: ClientView, query: QueryDict) -> dict[str, Any]:
    """Return the context with one page of each list, filtered by the search."""
    words = query.get("q", query.get("key", "")).lower().split()
    page = query.get("p", "")
    number = max(int(page), 1) if page.isdecimal() and len(page) < 7 else 1
    start, more = (number - 1) * PAGE_SIZE, False
    kinds = []
    for kind in client_view.kinds:
        entries = [
            listed_entry
            for listed_entry in kind.entries
            if has_all_words(words, f"{listed_entry.key} {listed_entry.title}")
        ]
        hidden = [component for component in kind.hidden if has_all_words(words, component.key)]
        end = start + PAGE_SIZE
        more = more or max(len(entries), len(hidden)) > end
        kinds.append(
            replace(
                kind,
                page_entries=entries[start:end],
                page_hidden=hidden[start:end],
                total=len(entries),
            )
        )
    return {
        "client_view": replace(client_view, kinds=tuple(kinds)),
        "number": number,
        "previous_url": _url_of_page(query, number - 1) if number > 1 else "",
        "next_url": _url_of_page(query, number + 1) if more else "",
    }


def _url_of_page(query: QueryDict, number: int) -> str:
    other = query.copy()
    other["p"] = str(number)
    return f"?{other.urlencode()}"


# Lists, and what is hidden from them --------------------------------------------------------------

logger = logging.getLogger("mcp_django")

CLIENT = {"name": "admin", "version": __version__}
# The four lists: kind of component, method, key of the list in the result, identifying key of an
# entry.
LISTS = (
    ("tool", "tools/list", "tools", "name"),
    ("resource", "resources/list", "resources", "uri"),
    ("resource template", "resources/templates/list", "resourceTemplates", "uriTemplate"),
    ("prompt", "prompts/list", "prompts", "name"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEntry:
    """One entry of a list, and the conditions that a call still has to meet."""

    key: str
    title: str
    json_text: str
    size: int
    needs: tuple[str, ...]


class HiddenComponent(NamedTuple):
    """A component that is not on the list, and the reasons."""

    key: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKind:
    """One list; ``rows`` has the templates whose rows are in a client's list of resources."""

    kind: str
    label: str
    entries: tuple[ListedEntry, ...]
    hidden: tuple[HiddenComponent, ...]
    rows: tuple[str, ...] = ()
    error: str = ""
    page_entries: Sequence[ListedEntry] = ()
    """The entries on the requested page that match the search."""
    page_hidden: Sequence[HiddenComponent] = ()
    total: int = 0
    """The number of entries that match the search, on all pages."""

    @property
    def size(self) -> int:
        """The estimated tokens of all entries."""
        return sum(listed_entry.size for listed_entry in self.entries)


class _CatalogSnapshot:
    """A snapshot of a server's catalog whose lists have a single page."""

    page_size = 1_000_000

    def __init__(self, server: MCPServer) -> None:
        server.refresh(is_list=True)
        self._server = server
        self.catalog = server.catalog
        self.declared_catalog = server.declared_catalog

    def refresh(self, *, is_list: bool = False) -> None:
        """Do nothing, so that lists and reasons come from the same snapshot."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientView:
    """What a caller sees: the lists, or in ``denials`` why the server rejects every request."""

    denials: tuple[str, ...]
    kinds: tuple[ListedKind, ...] = ()
    instructions: int = 0

    @property
    def size(self) -> int:
        """The estimated tokens that a client uses if it loads everything."""
        return self.instructions + sum(kind.size for kind in self.kinds)


def client_view_of(server: MCPServer, perspective: Perspective) -> ClientView:
    """Return what a server shows to the caller of a perspective."""
    snapshot = _CatalogSnapshot(server)
    if perspective.is_inactive:
        denial = _("The user is not active, so no credentials are accepted.")
        return ClientView(denials=(denial,))
    reasons = explain_connection(cast(Server, snapshot), perspective.principal).reasons
    for reason in reasons:
        if reason.failure:
            logger.error(
                "A permission of the server %r failed.", server.name, exc_info=reason.failure
            )
    if reasons:
        return ClientView(denials=tuple(reason.sentence() for reason in reasons))
    lists = _ListClient(snapshot, perspective)
    instructions = server.instructions
    return ClientView(
        denials=(),
        kinds=tuple(lists.listed_kind(*names) for names in LISTS),
        instructions=estimate_tokens(instructions) if instructions else 0,
    )


class _ListClient:
    """The lists of one client, and what is hidden from them."""

    def __init__(self, server: _CatalogSnapshot, perspective: Perspective) -> None:
        self._server = server
        self._principal, self._revision = perspective.principal, perspective.revision
        self._biggest_first = perspective.biggest_first
        self._client = LocalClient(
            cast(Server, server),
            self._principal,
            revision=self._revision,
            client_info=CLIENT,
            origin="admin",
        )
        self._client.initialize()
        # The catalog does not contain disabled prompts.
        prompts = of_tenant(PromptText).filter(server=server.name, is_enabled=False)
        self._disabled = {"prompt": [*prompts.values_list("name", flat=True)]}

    def listed_kind(self, kind: str, method: str, member: str, identity: str) -> ListedKind:
        """Return the list of one kind of component."""
        entries, error = self._entries(method, member)
        catalog: Mapping[str, Component] = self._server.catalog.by_kind[kind]
        listed_entries = []
        for wire in entries:
            component = catalog[wire[identity]]
            listed_entries.append(
                ListedEntry(
                    key=component.key,
                    title=str(component.title),
                    json_text=json.dumps(wire, indent=2, ensure_ascii=False),
                    size=estimate_tokens(wire),
                    needs=tuple(_describe_needs(component, self._principal)),
                )
            )
        if self._biggest_first:
            listed_entries.sort(key=lambda listed_entry: -listed_entry.size)
        hidden = tuple(self._hidden(kind, {listed_entry.key for listed_entry in listed_entries}))
        templates = self._server.catalog.templates.values() if kind == "resource" else ()
        return ListedKind(
            kind=kind,
            label=KIND_TITLES[kind],
            entries=tuple(listed_entries),
            hidden=hidden,
            rows=tuple(
                sorted(
                    template.key
                    for template in templates
                    if template.entries is not None and may_list_entries(self._principal, template)
                )
            ),
            error=error,
        )

    def _entries(self, method: str, member: str) -> tuple[list[Mapping[str, Any]], str]:
        """Return the entries of a list, and the error message if the method failed."""
        entries: list[Mapping[str, Any]] = []
        cursor: str | None = None
        while True:
            opened = self._client.open(self._client.message(method, {"cursor": cursor}))
            response: dict[str, Any]
            if isinstance(opened, Call):
                # The fixed resources of the list, without the rows for its user.
                book: ResourceListing = opened.arguments["book"]
                resources, _after = book.section_page(
                    opened.context(), FIXED_SECTION, None, _CatalogSnapshot.page_size
                )
                result = {"resources": resources, "ttlMs": 0, "cacheScope": "private"}
                response = json.loads(encode_response(opened, result))
            else:
                response = opened
            if "error" in response:
                # A server without such components does not have the method.
                is_missing = response["error"]["code"] == -32601
                return [], "" if is_missing else str(response["error"]["message"])
            entries += response["result"][member]
            cursor = response["result"].get("nextCursor")
            if cursor is None:
                return entries, ""

    def _hidden(self, kind: str, listed_keys: set[str]) -> Iterator[HiddenComponent]:
        declared, off = self._server.declared_catalog.by_kind[kind], self._disabled.get(kind, ())
        for key in sorted({*declared, *off} - listed_keys):
            component = self._server.catalog.by_kind[kind].get(key)
            if component is None:
                yield HiddenComponent(key, (_("It is disabled in the admin."),))
                continue
            verdict = explain(self._principal, component, use="list")
            yield HiddenComponent(key, tuple(reason.sentence() for reason in verdict.reasons))


AS_ANOTHER = "mcp_django.view_as_another"
MAX_SUGGESTED_CLIENTS = 100
# The longest client id that fits into a principal's key.
MAX_CLIENT = 60

ME, ANONYMOUS, ANOTHER = "me", "anonymous", "user"
LOGIN, TOKEN, OAUTH_CLIENT = "login", "token", "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Perspective:
    """The caller to show lists for; ``other_user`` is the user name if it is another user."""

    principal: Principal
    revision: Revision
    biggest_first: bool
    other_user: str = ""

    @property
    def is_inactive(self) -> bool:
        """Whether the user is inactive, so that no credentials would be accepted."""
        user = self.principal.user
        return bool(user.is_authenticated and not user.is_active)


class PerspectiveForm(forms.Form):
    """The form of the page; its data is the query string, so that the URL can be shared."""

    who = forms.ChoiceField(label=gettext_lazy("Who"), widget=forms.RadioSelect)
    user = forms.CharField(
        label=gettext_lazy("Name of the other user"), required=False, max_length=255
    )
    credential = forms.ChoiceField(
        label=gettext_lazy("Credentials"),
        help_text=gettext_lazy("Scopes do not restrict a login."),
    )
    client = forms.CharField(
        label=gettext_lazy("Client ID"),
        required=False,
        max_length=255,
        widget=forms.TextInput(attrs={"list": "seen-clients", "dir": "ltr"}),
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes of the token"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    revision = forms.ChoiceField(label=gettext_lazy("Protocol revision"))
    q = forms.CharField(
        label=gettext_lazy("Search"),
        required=False,
        max_length=255,
        widget=forms.TextInput(attrs={"type": "search"}),
    )
    order = forms.ChoiceField(
        label=gettext_lazy("Order"),
        choices=[("list", gettext_lazy("as in the list")), ("size", gettext_lazy("biggest first"))],
    )

    def __init__(self, request: HttpRequest, server: MCPServer) -> None:
        versions = server.protocol_versions
        newest = LATEST.version if LATEST.version in versions else next(iter(versions), "")
        defaults = {"who": ME, "credential": LOGIN, "revision": newest, "order": "list"}
        data = request.GET.copy()
        # The page of a component links here with its key.
        defaults["q"] = data.get("key", "")
        for name, value in defaults.items():
            data.setdefault(name, value)
        super().__init__(data)
        self._request, self._server = request, server
        self.may_be_another = request.user.has_perm(AS_ANOTHER)
        self._has_clients = apps.is_installed("oauth2_provider")
        people = [(ME, _("Yourself")), (ANONYMOUS, _("Anonymous, without credentials"))]
        credentials = [(LOGIN, _("a login of this site")), (TOKEN, _("an access token"))]
        if self.may_be_another:
            people.append((ANOTHER, _("Another user")))
        else:
            del self.fields["user"]
        if self._has_clients:
            credentials.append((OAUTH_CLIENT, _("an OAuth client")))
        else:
            del self.fields["client"]
        for name, choices in {
            "who": people,
            "credential": credentials,
            "scopes": [(scope, scope) for scope in _scopes_of(server)],
            "revision": [(version, version) for version in REVISIONS if version in versions],
        }.items():
            self.fields[name].choices = choices  # type: ignore[attr-defined]

    def suggested_clients(self) -> list[tuple[str, str]]:
        """Return ids and names of the newest clients; a site may have registered thousands."""
        if not self._has_clients:
            return []
        rows = _applications().order_by("-pk").values_list("client_id", "name")
        return list(rows[:MAX_SUGGESTED_CLIENTS])

    def clean(self) -> dict[str, Any]:
        """Look up the chosen user and client, and report one that does not exist."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        me: Any = self._request.user
        user: Any = me
        if cleaned.get("who") == ANOTHER:
            user = find_user_by_name(cleaned.get("user", ""))
            # A superuser is reported like a missing user: the permission must not reveal
            # superusers.
            if user is None or (user.is_superuser and not me.is_superuser):
                message = _("This user does not exist, or you may not view as this user.")
                self.add_error("user", message)
                user = None
        cleaned["found_user"] = user
        cleaned["found_client"] = None
        if cleaned.get("credential") == OAUTH_CLIENT and "client" in cleaned:
            client = _applications().filter(client_id=cleaned["client"]).first()
            if client is None:
                self.add_error("client", _("No client of this id is registered."))
            cleaned["found_client"] = client
        return cleaned

    def perspective(self) -> Perspective:
        """Return the choices of a valid form."""
        chosen, me = self.cleaned_data, self._request.user
        user = chosen["found_user"]
        is_other = chosen["who"] == ANOTHER and user.pk != me.pk
        is_anonymous = chosen["who"] == ANONYMOUS
        return Perspective(
            principal=anonymous_principal() if is_anonymous else self._principal(user),
            revision=REVISIONS[chosen["revision"]],
            biggest_first=chosen["order"] == "size",
            other_user=user.get_username() if is_other else "",
        )

    def _principal(self, user: Any) -> Principal:
        chosen = self.cleaned_data
        if chosen["credential"] == LOGIN:
            return principal_for(user)
        scopes = frozenset(chosen["scopes"])
        if chosen["credential"] == TOKEN:
            key = f"{key_of(user)}@token:0"
            return principal_for(user, key=key, backend="tokens", scopes=scopes)
        client = chosen["found_client"]
        servers_by_url = all_resources(self._request)
        urls = (url for url, server in servers_by_url.items() if server.name == self._server.name)
        return principal_for(
            user,
            key=f"{key_of(user)}@{client.client_id[:MAX_CLIENT]}",
            backend="oauth",
            scopes=scopes,
            client_id=client.client_id,
            client_name=client.name,
            # The audience of a token for this server is never empty.
            audience=self._server.resource_url or next(urls, "unmounted:"),
        )


def _scopes_of(server: MCPServer) -> list[str]:
    """Return every scope that the site, the server or one of its components declares."""
    needed = [scope for component in server.declared_catalog for scope in component.scopes]
    return sorted({*get_settings().scopes, *server.scopes, *needed})


def _applications() -> Any:
    name = getattr(django_settings, "OAUTH2_PROVIDER_APPLICATION_MODEL", "")
    return apps.get_model(name or "oauth2_provider.Application")._default_manager.all()


def _describe_needs(component: Component, principal: Principal) -> Iterator[str]:
    """Yield what a call still needs from a caller who sees the component."""
    if lacking := missing_scopes(principal.scopes, component.scopes):
        if principal.is_authenticated:
            text = _("a token with the scopes: %(scopes)s")
        else:
            text = _("credentials with the scopes: %(scopes)s")
        yield text % {"scopes": " ".join(lacking)}
    if component.needs:
        yield _("a client with the capabilities: %(needs)s") % {"needs": ", ".join(component.needs)}
    if not isinstance(component, Tool):
        return
    if component.task == "required" and not component.polling_fallback:
        yield _("a client that supports tasks")
    if component.approval == "caller":
        yield _("the approval of the caller, for each call")
    elif component.approval == "staff":
        yield _("the approval of staff, for each call")
