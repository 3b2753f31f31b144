"""Through whose eyes: the user, the credential, its scopes and the revision of the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mcp_django.auth.endpoints import all_resources
from mcp_django.auth.principal import Principal, anonymous, key_of, principal_for, user_named
from mcp_django.conf import get_settings
from mcp_django.protocol.revisions import LATEST, REVISIONS, Revision
from mcp_django.server import MCPServer

AS_ANOTHER = "mcp_django.view_as_another"
MAX_SUGGESTED_CLIENTS = 100
# What a principal's key has room for.
_MAX_CLIENT = 60

ME, ANONYMOUS, ANOTHER = "me", "anonymous", "user"
LOGIN, TOKEN, CLIENT = "login", "token", "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewpoint:
    """The caller as the server would know him; ``other`` is his name if he is somebody else."""

    principal: Principal
    revision: Revision
    biggest_first: bool
    other: str = ""

    @property
    def is_inactive(self) -> bool:
        """Whether no credential of the user would be taken."""
        user = self.principal.user
        return bool(user.is_authenticated and not user.is_active)


class ViewpointForm(forms.Form):
    """The choice, in the address: whoever is sent it sees the same, if he may."""

    who = forms.ChoiceField(label=gettext_lazy("Who"), widget=forms.RadioSelect)
    user = forms.CharField(
        label=gettext_lazy("Name of the other user"), required=False, max_length=255
    )
    credential = forms.ChoiceField(
        label=gettext_lazy("With"),
        help_text=gettext_lazy("A login is held back by no scope."),
    )
    client = forms.CharField(
        label=gettext_lazy("Client id"),
        required=False,
        max_length=255,
        widget=forms.TextInput(attrs={"list": "seen-clients", "dir": "ltr"}),
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes of the token"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    revision = forms.ChoiceField(label=gettext_lazy("Revision of the protocol"))
    order = forms.ChoiceField(
        label=gettext_lazy("Order"),
        choices=[
            ("list", gettext_lazy("as in the list")),
            ("size", gettext_lazy("biggest first")),
        ],
    )

    def __init__(self, request: HttpRequest, server: MCPServer) -> None:
        versions = server.protocol_versions
        newest = LATEST.version if LATEST.version in versions else next(iter(versions), "")
        defaults = {"who": ME, "credential": LOGIN, "revision": newest, "order": "list"}
        super().__init__(_with_defaults(request.GET, defaults), prefix=None)
        self._request, self._server = request, server
        self.may_be_another = request.user.has_perm(AS_ANOTHER)
        self._offer("who", self._people())
        self._offer("credential", self._credentials())
        self._offer("scopes", [(scope, scope) for scope in scopes_of(server)])
        self._offer("revision", [(one, one) for one in REVISIONS if one in versions])
        if not self.may_be_another:
            del self.fields["user"]
        if not self._has_clients:
            del self.fields["client"]

    def _offer(self, name: str, choices: list[tuple[str, Any]]) -> None:
        self.fields[name].choices = choices  # type: ignore[attr-defined]

    def _people(self) -> list[tuple[str, Any]]:
        found = [(ME, _("Yourself")), (ANONYMOUS, _("Nobody, without credentials"))]
        return [*found, (ANOTHER, _("Another user"))] if self.may_be_another else found

    def _credentials(self) -> list[tuple[str, Any]]:
        found = [(LOGIN, _("a login of this site")), (TOKEN, _("an access token"))]
        return [*found, (CLIENT, _("an OAuth client"))] if self._has_clients else found

    @property
    def _has_clients(self) -> bool:
        return apps.is_installed("oauth2_provider")

    def suggested_clients(self) -> list[tuple[str, str]]:
        """The newest clients by id, with their names; there may be thousands that came by once."""
        if not self._has_clients:
            return []
        rows = _applications().order_by("-pk").values_list("client_id", "name")
        return list(rows[:MAX_SUGGESTED_CLIENTS])

    def clean(self) -> dict[str, Any]:
        """Ask for what the choices need, and find whom they name."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        cleaned["found_user"] = self._found_user(cleaned)
        cleaned["found_client"] = None
        if cleaned.get("credential") == CLIENT and "client" in cleaned:
            found = _applications().filter(client_id=cleaned["client"]).first()
            if found is None:
                self.add_error("client", _("No client of this id is registered."))
            cleaned["found_client"] = found
        return cleaned

    def _found_user(self, cleaned: dict[str, Any]) -> Any:
        me: Any = self._request.user
        if cleaned.get("who") != ANOTHER:
            return me
        found = user_named(cleaned.get("user", ""))
        # An administrator and nobody look alike: a single permission tells of no other.
        if found is None or (found.is_superuser and not me.is_superuser):
            self.add_error("user", _("There is no such user to look as."))
            return None
        return found

    def viewpoint(self) -> Viewpoint:
        """What was chosen; only of a form that is valid."""
        chosen, me = self.cleaned_data, self._request.user
        user = chosen["found_user"]
        is_other = chosen["who"] == ANOTHER and user.pk != me.pk
        return Viewpoint(
            principal=anonymous() if chosen["who"] == ANONYMOUS else self._principal(user),
            revision=REVISIONS[chosen["revision"]],
            biggest_first=chosen["order"] == "size",
            other=user.get_username() if is_other else "",
        )

    def _principal(self, user: Any) -> Principal:
        chosen = self.cleaned_data
        if chosen["credential"] == LOGIN:
            return principal_for(user)
        scopes = frozenset(chosen["scopes"])
        if chosen["credential"] == TOKEN:
            return principal_for(
                user, key=f"{key_of(user)}@token:0", backend="tokens", scopes=scopes
            )
        client = chosen["found_client"]
        return principal_for(
            user,
            key=f"{key_of(user)}@{client.client_id[:_MAX_CLIENT]}",
            backend="oauth",
            scopes=scopes,
            client_id=client.client_id,
            client_name=client.name,
            audience=self._audience(),
        )

    def _audience(self) -> str:
        """What a token for this server would be good for; never empty, as with such a token."""
        found = all_resources(self._request).items()
        urls = (url for url, server in found if server.name == self._server.name)
        return self._server.resource_url or next(urls, "unmounted:")


def refuse_another(request: HttpRequest) -> None:
    """See that only who may looks through the eyes of another, whether there is such a user or not.

    Raises:
        PermissionDenied: he may not.
    """
    if request.GET.get("who") == ANOTHER and not request.user.has_perm(AS_ANOTHER):
        raise PermissionDenied


def scopes_of(server: MCPServer) -> list[str]:
    """Every scope that makes a difference here, and those that the site declares."""
    needed = [scope for one in server.available for scope in one.scopes]
    return sorted({*get_settings().scopes, *server.scopes, *needed})


def _applications() -> Any:
    name = getattr(django_settings, "OAUTH2_PROVIDER_APPLICATION_MODEL", "")
    return apps.get_model(name or "oauth2_provider.Application")._default_manager.all()


def _with_defaults(given: QueryDict, defaults: dict[str, str]) -> QueryDict:
    data = given.copy()
    for name, value in defaults.items():
        if name not in data:
            data[name] = value
    return data
