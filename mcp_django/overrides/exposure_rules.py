"""Rules for exposing models and views in the admin: the options, and what may never be exposed.

Options are read strictly: an unknown option is an error, not ignored.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.db.models import BinaryField, Field, Model
from django.utils.translation import gettext

from mcp_django.integrations.models.columns import FieldPath
from mcp_django.overrides.override_values import is_name_list
from mcp_django.protocol.text import did_you_mean
from mcp_django.schema.secrets import is_secret_name

OPERATIONS = ("list", "get", "count", "create", "update", "delete")
READING = ("list", "get", "count")
PERMISSION_ACTIONS = {"create": "add", "update": "change", "delete": "delete"}
"""The Django permission action that each writing operation requires."""

BECOMES = ("tool", "resource", "prompt", "form")
PARAMETER_TYPES: Mapping[str, type] = {
    "text": str,
    "whole number": int,
    "number": float,
    "yes or no": bool,
    "date": dt.date,
}
"""The types of query parameters, by their names in the form and in stored options."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureOptions:
    """Base class for the options of one kind of row; subclasses declare them as fields."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the options that a row stores.

        Raises:
            ImproperlyConfigured: an option is invalid; the message says what to write instead.
        """
        fields_by_name = {field.name: field for field in fields(cls)}
        options: dict[str, Any] = {}
        for name, value in values.items():
            if name not in fields_by_name:
                hint = did_you_mean(name, fields_by_name, f"valid names: {[*fields_by_name]}.")
                raise ImproperlyConfigured(f"No option named {str(name)[:80]!r}; {hint}")
            default = fields_by_name[name].default
            takes_list = isinstance(default, tuple)
            if takes_list and not is_name_list(value):
                raise ImproperlyConfigured(f"{name} is not a list of names: {value!r:.80}.")
            if not takes_list and type(value) is not type(default):
                raise ImproperlyConfigured(
                    f"{name} is {value!r:.80}; it must have the type of {default!r}."
                )
            allowed = cls.choices.get(name)
            for choice in value if takes_list else (value,):
                if allowed is not None and choice not in allowed:
                    raise ImproperlyConfigured(
                        f"{name} has {choice!r:.80}; valid values: {', '.join(allowed)}."
                    )
            options[name] = tuple(value) if takes_list else value
        return cls(**options)

    def to_json(self) -> dict[str, Any]:
        """Return the options as a row stores them, without default values."""
        defaults = {field.name: field.default for field in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value != defaults[name]
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(ExposureOptions):
    """The options of an exposed model, named as in ``ModelTools`` and ``ModelResource``."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"operations": OPERATIONS}

    fields: tuple[str, ...] = ()
    filter_fields: tuple[str, ...] = ()
    search_fields: tuple[str, ...] = ()
    ordering_fields: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    write_fields: tuple[str, ...] = ()
    operations: tuple[str, ...] = READING
    page_size: int = 50
    plural: str = ""
    description: str = ""
    uri: str = ""
    is_listed: bool = True
    subscribe: bool = False

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions for which a user needs Django's permissions to expose this."""
        return (
            "view",
            *(
                PERMISSION_ACTIONS[operation]
                for operation in self.operations
                if operation in PERMISSION_ACTIONS
            ),
        )

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists that contain the components."""
        return (*(("tools",) if self.operations else ()), *(("resources",) if self.uri else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions(ExposureOptions):
    """The options of an exposed view; ``query`` has parameters with types: ``season: text``."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"becomes": BECOMES}

    becomes: str = "tool"
    uri: str = ""
    query: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("get",)
    is_readable: bool = True
    title: str = ""
    description: str = ""

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists that contain the components."""
        return ({"resource": "resources", "prompt": "prompts"}.get(self.becomes, "tools"),)

    @property
    def parameters(self) -> dict[str, type]:
        """The query parameters with their types.

        Raises:
            ImproperlyConfigured: a parameter is invalid.
        """
        parameters: dict[str, type] = {}
        for line in self.query:
            name, _, kind = (part.strip() for part in line.partition(":"))
            if (
                not name.isidentifier()
                or (kind or "text") not in PARAMETER_TYPES
                or name in parameters
            ):
                raise ImproperlyConfigured(
                    f"query has {line!r:.80}; write a unique name and one of the types "
                    f"{', '.join(PARAMETER_TYPES)}, as in 'season: text'."
                )
            parameters[name] = PARAMETER_TYPES[kind or "text"]
        return parameters


# What may never be exposed in the admin -----------------------------------------------------------

# Secrets, and models that control access. Code may expose them, since its developer is responsible
# for the site. The error messages say so.

ShownByCode: TypeAlias = Callable[[type[Model]], Collection[str]]

MAX_HOPS = 1

# Fields that identify a person, also in a custom user model, besides its key and USERNAME_FIELD.
PERSON_FIELDS = frozenset(
    {"display_name", "first_name", "full_name", "last_name", "name", "short_name", "username"}
)

# Apps with sessions, tokens, credentials, or the records of this package and the admin.
EXCLUDED_APPS = frozenset(
    {
        "allauth.account",
        "allauth.mfa",
        "allauth.socialaccount",
        "allauth.usersessions",
        "auditlog",
        "axes",
        "django.contrib.admin",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django_rest_passwordreset",
        "knox",
        "mcp_django",
        "mcp_django.oauth",
        "oauth2_provider",
        "rest_framework_api_key",
        "rest_framework.authtoken",
        "rest_framework_simplejwt.token_blacklist",
        "reversion",
        "silk",
        "social_django",
    }
)
EXCLUDED_APP_PREFIXES = ("django_otp", "two_factor", "allauth.idp")

SECRET_CLASSES = ("Password", "Encrypted", "Secret", "Token")

# Views of these modules sign users in, change passwords, grant access or serve files.
EXCLUDED_VIEW_MODULES = (
    *("allauth.", "dj_rest_auth.", "djoser.", "knox.", "rest_framework.authtoken."),
    *("rest_framework_simplejwt.", "social_django.", "mozilla_django_oidc.", "hijack."),
    "django.contrib.admin.",
    "django.contrib.admindocs.",
    "django.contrib.auth.",
    "django.views.static",
    "mcp_django.",
    "oauth2_provider.",
    "two_factor.",
)
# A site's own view that inherits from one of these has the same effects.
EXCLUDED_VIEW_BASES = (
    *("allauth.account.views", "allauth.socialaccount.views", "dj_rest_auth.", "djoser.views"),
    *("django.contrib.auth.views", "knox.views", "oauth2_provider.views"),
    *("rest_framework.authtoken.views", "rest_framework_simplejwt.views", "two_factor.views"),
)


def exposable_models() -> Iterator[type[Model]]:
    """Return the models that may be exposed, sorted by app and name."""
    models = sorted(apps.get_models(), key=lambda model: model._meta.label_lower)
    return (model for model in models if not model_exclusion(model))


def model_exclusion(model: type[Model]) -> str:
    """Return why a model may not be exposed, or ``""``."""
    config: Any = model._meta.app_config
    if config is None:
        # Such as the model of applied migrations.
        return gettext("%(model)s belongs to no installed app.") % {"model": model._meta.label}
    # A site's own token or session model may inherit from one of these apps.
    for name in (config.name, *(base.__module__ for base in model.__mro__)):
        is_excluded = any(f"{name}.".startswith(f"{app}.") for app in EXCLUDED_APPS)
        if is_excluded or name.startswith(EXCLUDED_APP_PREFIXES):
            text = gettext(
                "%(model)s belongs to %(app)s, which stores sessions, credentials or records of "
                "them; it cannot be exposed in the admin."
            )
            return text % {"model": model._meta.label, "app": name}
    return ""


def controls_access(model: type[Model]) -> bool:
    """Return whether the rows of a model control who may do what."""
    concrete: Any = model._meta.concrete_model
    return concrete._meta.app_label == "auth" or _is_user(model)


def path_exclusion(path: FieldPath, shown_by_code: ShownByCode) -> str:
    """Return why a path may not be shown, or ``""``; the text completes a sentence about the path.

    ``shown_by_code`` returns the columns of a model that code shows on the same server.
    """
    if len(path.hops) > MAX_HOPS:
        return gettext(
            "follows more than one relation; expose the model behind the first relation, or "
            "declare the path in code."
        )
    for field in (*path.hops, path.field):
        if may_hold_secret(field):
            return gettext(
                "may hold a secret, so the admin cannot expose it; declare it in code if it is not "
                "a secret."
            )
        related = getattr(field, "related_model", None)
        if isinstance(related, type) and (reason := model_exclusion(related)):
            return gettext("leads to a model that cannot be exposed: %(reason)s") % {
                "reason": reason
            }
    for hop in path.hops:
        model = hop.related_model
        if (
            _is_user(model)
            and path.field.name not in PERSON_FIELDS | {model._meta.pk.name, model.USERNAME_FIELD}
            and path.field.name not in shown_by_code(model)
        ):
            text = gettext(
                "reveals more than the name of a user; if clients need it, show it in code, in "
                "tools of %(model)s on this server."
            )
            return text % {"model": model._meta.label}
    return ""


def _is_user(model: type[Model]) -> bool:
    """Return whether the rows of a model are users of the site."""
    concrete: Any = model._meta.concrete_model
    return issubclass(concrete, get_user_model())


def form_exclusion(form_class: Any) -> str:
    """Return why a form may not be exposed, or ``""``."""
    for name, field in form_class.base_fields.items():
        if is_secret_name(name) or getattr(field.widget, "input_type", "") == "password":
            text = gettext(
                "The form asks for “%(field)s”, which may be a secret; secrets must not pass "
                "through a client."
            )
            return text % {"field": name}
    return ""


def may_hold_secret(field: Any) -> bool:
    """Return whether a field may hold a secret, by its name, class and widget."""
    if is_secret_name(field.name):
        return True
    kinds = [cls.__name__ for cls in type(field).__mro__]
    if any(kind.startswith(SECRET_CLASSES) for kind in kinds):
        return True
    return isinstance(field, BinaryField) or (isinstance(field, Field) and _is_hidden(field))


def _is_hidden(field: Field[Any, Any]) -> bool:
    """Return whether forms hide the input of a field."""
    if field.is_relation:
        # Its form field would query the related rows.
        return False
    form_field: Any = field.formfield()
    return getattr(getattr(form_field, "widget", None), "input_type", "") == "password"


def route_exclusion(route: Any) -> str:
    """Return why the view of a URL may not be exposed, or ``""``."""
    callback, view = route.callback, route.view
    modules = {str(getattr(handler, "__module__", "")) for handler in (callback, view)}
    # Mixins such as ``LoginRequiredMixin`` are in other modules, so views with them are allowed.
    bases = {f"{base.__module__}." for base in getattr(view, "__mro__", ())}
    has_excluded_base = any(base.startswith(EXCLUDED_VIEW_BASES) for base in bases)
    # A view that the admin wraps has the module of the wrapped function.
    is_admin = any(app == "admin" or space == "admin" for space, app in route.namespaces)
    if (
        is_admin
        or has_excluded_base
        or any(f"{module}.".startswith(EXCLUDED_VIEW_MODULES) for module in modules)
    ):
        text = gettext(
            "“%(name)s” belongs to the admin, signs users in, grants access or serves files; it "
            "cannot be exposed in the admin."
        )
        return text % {"name": route.full_name}
    return ""
