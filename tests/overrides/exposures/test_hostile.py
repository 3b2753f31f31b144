"""Whatever is written into the rows by hand, the server goes on, and nothing becomes accessible."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.views import LoginView
from django.contrib.sessions.base_session import AbstractBaseSession
from django.contrib.sessions.models import Session
from django.db import models
from django.test.utils import isolate_apps
from hypothesis import HealthCheck, given, settings, strategies as st
from rest_framework.authtoken.views import ObtainAuthToken

from mcp_django import ModelTools
from mcp_django.integrations.site_requests import URLRoute
from mcp_django.models import Exposure
from mcp_django.overrides.exposure_rules import (
    ModelOptions,
    ViewOptions,
    may_hold_secret,
    model_exclusion,
    route_exclusion,
)
from mcp_django.overrides.exposures import build_exposures
from mcp_django.overrides.override_values import ExposureSpec, spec_of
from mcp_django.test import MCPClient
from tests.kit.rings import examples
from tests.overrides.exposures.rows import ORDERS, expose, viewer
from tests.sites.shop.models import Order

SECRETS = ["password", "customer__password", "customer__user__password", "secret", "lines__secret"]

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
names = st.sampled_from(
    [*ORDERS["fields"], *SECRETS, "id", "pk", "margin", "customer__name", "-total", "", "\0", "__"]
)
plausible = st.fixed_dictionaries(
    {},
    optional={
        **{
            name: st.lists(names, max_size=4) | json
            for name in ModelOptions.__dataclass_fields__
            if name.endswith(("fields", "ordering"))
        },
        "operations": st.lists(st.sampled_from(["list", "get", "count", "delete", "x"])) | json,
        "uri": st.sampled_from(["shop://o/{number}", "shop://{margin}", "{", "x"]) | json,
        "page_size": st.integers() | json,
        "subscribe": st.booleans() | json,
        "plural": st.text(max_size=5) | json,
        "unheard_of": json,
    },
)
row = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["model", "view", "else", ""]),
        "target": st.sampled_from(["shop.Order", "shop.Customer", "auth.User", "who", "x.y", "."]),
        "name": st.sampled_from(["", "order", "Not a name", "\0"]),
        "options": plausible | json,
        "groups": st.just([]) | json,
        "permissions": st.just([]) | json,
        "scopes": st.just([]) | json,
    }
)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=row)
def test_no_row_breaks_what_is_built_or_shows_a_secret(server, values):
    spec = spec_of(Exposure(pk=1, server="desk", **values))
    built = build_exposures(server, "desk", [spec])
    assert built.components or built.problems
    paths = {
        name
        for declaration in built.staging.registry.declarations
        for name in declaration.exposed.paths
    }
    assert not paths.intersection(SECRETS)
    for component in built.components_of(spec):
        # An invalid list of groups must not be treated as an empty one.
        assert values["groups"] == [] or "group" in repr([*map(str, component.permission)])


@pytest.mark.django_db
@pytest.mark.parametrize(
    "broken",
    [
        {"options": ["fields"]},
        {"options": {"fields": ["gone"]}},
        {"options": {"fields": ["number"], "filter_fields": ["internal_note"]}},
        {"options": {"fields": ["number"], "operations": ["drop"]}},
        {"options": {"fields": ["number"], "page_size": 10**9}},
        {"options": {"fields": ["number"], "permission": None}},
        {"groups": "buyers"},
        {"groups": [1]},
        {"permissions": {"shop.view_order": True}},
        {"permissions": ["view_order"]},
        {"scopes": ["a b"]},
        {"target": "shop.Gone"},
        {"target": "sessions.Session", "options": {"fields": ["session_key"]}},
        {"target": "mcp_django.AccessToken", "options": {"fields": ["id"]}},
        {"name": "Order!"},
    ],
    ids=repr,
)
def test_a_broken_row_is_left_out_and_the_others_are_served(server, broken, caplog):
    expose(**{"options": {"fields": ["number"]}, **broken})
    expose("shop.Product", options={"fields": ["slug", "name"]})
    user = viewer("view_order", "view_product", is_superuser=True)
    client = MCPClient(server=server, user=user)
    for _ in range(3):
        names = [tool["name"] for tool in client.list_tools()]
        assert names == ["count_products", "get_product", "list_products"]
    complaints = [record for record in caplog.records if "Problem with the" in record.getMessage()]
    assert len(complaints) == 1


@pytest.mark.parametrize(
    ("target", "fields", "words"),
    [
        ("shop.Customer", ["name", "password"], "secret"),
        ("shop.Order", ["number", "customer__password"], "secret"),
        ("shop.Order", ["number", "customer__user__username"], "more than one relation"),
        ("shop.OrderLine", ["id", "secret"], "secret"),
        ("shop.Product", ["slug", "digest"], "secret"),
        ("shop.Remark", ["id", "content_type"], "cannot be exposed"),
        ("auth.User", ["username", "password"], "secret"),
        ("auth.User", ["username", "logentry"], "cannot be exposed"),
        ("shop.Customer", ["name", "user__is_superuser"], "'user__is_superuser' reveals more than"),
        ("shop.Customer", ["name", "user__email"], "'user__email' reveals more than the name"),
        ("shop.Customer", ["name", "user__groups"], "'user__groups' reveals more than the name"),
    ],
)
def test_what_may_be_a_secret_is_refused_with_the_way_out(server, target, fields, words):
    spec = spec_of(
        Exposure(pk=1, kind="model", server="desk", target=target, options={"fields": fields})
    )
    (problem,) = build_exposures(server, "desk", [spec]).problems
    assert words in problem.reason


def test_a_path_into_the_user_model_ends_at_what_names_a_person_unless_code_shows_more(server):
    def problems(*fields: str) -> list[str]:
        exposure = Exposure(
            pk=1, kind="model", server="desk", target="shop.Customer", options={"fields": fields}
        )
        return [
            problem.reason
            for problem in build_exposures(server, "desk", [spec_of(exposure)]).problems
        ]

    assert not problems("id", "name", "user", "user__id", "user__username", "user__last_name")
    (reason,) = problems("id", "name", "user__email")
    assert "show it in code, in tools of auth.User on this server" in reason

    @server.register(get_user_model())
    class Users(ModelTools[Any]):
        fields = ["username", "email"]

    assert not problems("id", "name", "user__email")
    assert problems("id", "name", "user__is_staff")


@pytest.mark.parametrize("operation", ["create", "update", "delete"])
def test_who_may_do_what_is_not_written_by_clients(server, operation):
    options = {"fields": ["username", "is_superuser"], "operations": [operation]}
    spec = spec_of(Exposure(pk=1, kind="model", server="desk", target="auth.User", options=options))
    (problem,) = build_exposures(server, "desk", [spec]).problems
    assert "must not change users, groups or permissions" in problem.reason


@isolate_apps("tests.sites.shop")
def test_what_a_site_makes_of_closed_models_is_closed():
    class Visit(AbstractBaseSession):
        class Meta:
            app_label = "shop"

    class Login(Session):
        class Meta:
            app_label = "shop"
            proxy = True

    assert "django.contrib.sessions" in model_exclusion(Visit)
    assert "django.contrib.sessions" in model_exclusion(Login)


@pytest.mark.parametrize("base", [ObtainAuthToken, LoginView])
@pytest.mark.parametrize("is_own", [False, True])
def test_no_view_that_signs_in_is_exposed_nor_what_a_site_makes_of_it(base, is_own):
    view = type("Mine", (base,), {}) if is_own else base
    route = URLRoute(name="in", callback=view.as_view())
    assert "signs users in" in route_exclusion(route)


@pytest.mark.parametrize(
    "name", ["apiToken", "accessTokenValue", "passwordHash", "reset_key", "session_data", "pwd"]
)
def test_a_name_that_sounds_secret_is_closed_however_it_is_written(name):
    field = models.CharField(max_length=9)
    field.name = name
    assert may_hold_secret(field)


def test_options_survive_a_round_through_a_row():
    for options in (
        ModelOptions(fields=("a", "b"), page_size=7, subscribe=True),
        ViewOptions(becomes="resource", uri="a://b", query=("x: date",)),
    ):
        assert type(options).from_json(options.to_json()) == options


def test_an_exposure_of_another_version_is_a_problem_and_no_failure(server):
    spec = ExposureSpec(pk=1, kind="model", server="desk", target="shop.Order", error="odd")
    assert [problem.reason for problem in build_exposures(server, "desk", [spec]).problems] == [
        "odd"
    ]
    assert Order._meta.label == "shop.Order"
