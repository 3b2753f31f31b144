"""What nobody may expose in the admin: secrets, and what decides about access.

Code may, since whoever writes it answers for the site. Each refusal says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeAlias

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import BinaryField, Field, Model

from mcp_django.schema.secrets import names_secret
from mcp_django.sources.models.paths import FieldPath

ShownByCode: TypeAlias = Callable[[type[Model]], Collection[str]]

MAX_HOPS = 1

# What tells people apart, of a custom user model too, beside its key and USERNAME_FIELD.
PERSON_FIELDS = frozenset(
    {"display_name", "first_name", "full_name", "last_name", "name", "short_name", "username"}
)

# Sessions, tokens, credentials, and the tables in which this package and the admin keep records.
CLOSED_APPS = frozenset(
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
CLOSED_PREFIXES = ("django_otp", "two_factor", "allauth.idp")

SECRET_CLASSES = ("Password", "Encrypted", "Secret", "Token")

# Views of these modules sign in, change passwords, grant access or serve files.
CLOSED_VIEWS = (
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
# A site's own view that is made of one of these does what it does.
CLOSED_BASES = (
    *("allauth.account.views", "allauth.socialaccount.views", "dj_rest_auth.", "djoser.views"),
    *("django.contrib.auth.views", "knox.views", "oauth2_provider.views"),
    *("rest_framework.authtoken.views", "rest_framework_simplejwt.views", "two_factor.views"),
)


def models_to_expose() -> Iterator[type[Model]]:
    """The models that may be exposed, by app and name."""
    every = sorted(apps.get_models(), key=lambda one: one._meta.label_lower)
    return (model for model in every if not closed_model(model))


def closed_model(model: type[Model]) -> str:
    """Why a model may not be exposed; empty if it may."""
    config: Any = model._meta.app_config
    if config is None:
        # Such as the record of migrations.
        return f"{model._meta.label} belongs to no installed app."
    # A site may have its own tokens or sessions, made of those of an app.
    for name in (config.name, *(base.__module__ for base in model.__mro__)):
        if is_closed_app(name):
            return (
                f"{model._meta.label} belongs to {name}, which keeps sessions, credentials or "
                "records of them; it is not exposed from the admin."
            )
    return ""


def is_closed_app(name: str) -> bool:
    """Whether an app, or the one that a module belongs to, keeps what nobody may expose."""
    dotted = f"{name}."
    return any(dotted.startswith(f"{one}.") for one in CLOSED_APPS) or name.startswith(
        CLOSED_PREFIXES
    )


def decides_access(model: type[Model]) -> bool:
    """Whether the rows of a model say who may do what."""
    concrete: Any = model._meta.concrete_model
    return concrete._meta.app_label == "auth" or is_user(model)


def closed_path(path: FieldPath, shown_by_code: ShownByCode) -> str:
    """Why a path may not be shown, as the end of a sentence that begins with it; empty if it may.

    ``shown_by_code`` gives the columns of a model that code shows on the server of the exposure.
    """
    if len(path.hops) > MAX_HOPS:
        return (
            "follows more than one relation; expose the model behind the first, or declare it in "
            "code."
        )
    for field in (*path.hops, path.field):
        if is_secret(field):
            return (
                "may hold a secret, and is not shown from the admin; declare it in code if it is "
                "none."
            )
        related = getattr(field, "related_model", None)
        if isinstance(related, type) and (reason := closed_model(related)):
            return f"leads to what is closed: {reason}"
    for hop in path.hops:
        model = hop.related_model
        if (
            is_user(model)
            and not _names_person(path.field, model)
            and path.field.name not in shown_by_code(model)
        ):
            return (
                "is more than the name of a user; show it in code, in tools of "
                f"{model._meta.label} on this server, if clients are to have it."
            )
    return ""


def is_user(model: type[Model]) -> bool:
    """Whether the rows of a model are users of the site."""
    concrete: Any = model._meta.concrete_model
    return issubclass(concrete, get_user_model())


def _names_person(field: Any, model: Any) -> bool:
    return field.name in PERSON_FIELDS | {model._meta.pk.name, model.USERNAME_FIELD}


def closed_form(form_class: Any) -> str:
    """Why a form may not be offered; empty if it may."""
    for name, field in form_class.base_fields.items():
        if names_secret(name) or getattr(field.widget, "input_type", "") == "password":
            return (
                f"The form asks for {name!r}, which may be a secret, and no secret goes through a "
                "client."
            )
    return ""


def is_secret(field: Any) -> bool:
    """Whether a field may hold a secret, by its name, its kind and its widget."""
    if names_secret(field.name):
        return True
    kinds = [cls.__name__ for cls in type(field).__mro__]
    if any(kind.startswith(SECRET_CLASSES) for kind in kinds):
        return True
    return isinstance(field, BinaryField) or (isinstance(field, Field) and _is_hidden(field))


def _is_hidden(field: Field[Any, Any]) -> bool:
    """Whether forms hide what is typed into it."""
    if field.is_relation:
        # Its form field would have to ask for the rows behind it.
        return False
    form_field: Any = field.formfield()
    return getattr(getattr(form_field, "widget", None), "input_type", "") == "password"


def closed_route(route: Any) -> str:
    """Why the view of a URL may not be exposed; empty if it may."""
    callback, view = route.callback, route.view
    modules = {str(getattr(one, "__module__", "")) for one in (callback, view)}
    # Mixins that ask who somebody is are elsewhere.
    bases = {f"{base.__module__}." for base in getattr(view, "__mro__", ())}
    is_made_of_one = any(base.startswith(CLOSED_BASES) for base in bases)
    # A view that is wrapped in the admin carries the name of what is inside.
    is_admin = any(app == "admin" or space == "admin" for space, app in route.namespaces)
    if is_admin or is_made_of_one or any(f"{one}.".startswith(CLOSED_VIEWS) for one in modules):
        return (
            f"{route.full_name!r} belongs to the admin, signs somebody in, grants access or serves "
            "files; it is not exposed from the admin."
        )
    return ""
