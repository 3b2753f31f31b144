"""The class for django-tenants, over stand-ins: `tests/sites/tenants` has the real package."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import pytest
from django.core.exceptions import ObjectDoesNotExist
from django.core.management import CommandError, call_command
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import get_urlconf, set_urlconf

from mcp_django import tenants
from mcp_django.schema import deferred
from mcp_django.schema.deferred import Deferred
from mcp_django.storage import cleanup

PUBLIC = SimpleNamespace(schema_name="public")
ROWS = {"alpha": SimpleNamespace(schema_name="alpha")}


class Connection:
    """A connection with a schema."""

    def __init__(self):
        self.tenant = PUBLIC

    @property
    def schema_name(self):
        return self.tenant.schema_name

    def set_tenant(self, tenant):
        self.tenant = tenant


class TenantMainMiddleware:
    """Finds the tenant by the path."""

    def __init__(self, get_response):
        self.get_response = get_response

    def process_request(self, request):
        set_urlconf("tests.nowhere")
        if request.path == "/none":
            return HttpResponse(status=404)
        request.tenant = ROWS["alpha"]
        connection.set_tenant(request.tenant)
        return None


connection = Connection()


class Tenants:
    """The tenant model."""

    _default_manager = SimpleNamespace()


def get(schema_name):
    try:
        return ROWS[schema_name]
    except KeyError:
        raise ObjectDoesNotExist from None


Tenants._default_manager.get = get


@contextmanager
def tenant_context(row):
    before, connection.tenant = connection.tenant, row
    try:
        yield
    finally:
        connection.tenant = before


@pytest.fixture
def package(monkeypatch, settings):
    """Return the class for django-tenants, on a site with the package."""
    for name, values in {
        "django_tenants": {},
        "django_tenants.utils": {
            "get_tenant_model": lambda: Tenants,
            "schema_context": lambda name: tenant_context(SimpleNamespace(schema_name=name)),
            "tenant_context": tenant_context,
        },
        "django_tenants.middleware": {},
        "django_tenants.middleware.main": {"TenantMainMiddleware": TenantMainMiddleware},
    }.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(tenants, "connection", connection)
    connection.set_tenant(PUBLIC)
    settings.TENANT_MODEL = "auth.User"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.TenantMainMiddleware"]
    return tenants.thread_context()


def request_of(path):
    request = HttpRequest()
    request.path = path
    return request


def test_the_class_is_used_without_a_setting(package):
    assert isinstance(package, tenants.DjangoTenants)
    assert tenants.tenant_middleware() is TenantMainMiddleware
    assert tenants.is_shared("public")
    assert not tenants.is_shared("alpha")


def test_the_tenant_of_a_thread_and_of_a_request_is_its_schema(package):
    # Forget the tenants of other tests in this process.
    tenants.take_seen_tenants()
    assert package.capture(None) == "public"
    assert tenants.current_tenant() == "public"
    assert tenants.take_seen_tenants() == ["public"]
    request = request_of("/mcp")
    request.tenant = ROWS["alpha"]
    assert package.capture(request) == "alpha"


def test_without_middleware_that_of_the_site_finds_the_tenant(package):
    assert package.capture(request_of("/mcp")) == "alpha"
    # The thread keeps neither the tenant nor the URLconf.
    assert (connection.schema_name, get_urlconf()) == ("public", None)
    with pytest.raises(Http404):
        package.capture(request_of("/none"))


def test_without_any_middleware_no_request_has_a_tenant(package, settings):
    settings.MIDDLEWARE = []
    with pytest.raises(Http404):
        package.capture(request_of("/mcp"))


def test_a_thread_works_for_a_tenant_that_exists(package):
    for name in ("alpha", "public"):
        with tenants.as_tenant(name):
            assert tenants.run_as_tenant(lambda: connection.schema_name) == name
    with tenants.as_tenant("gone"), pytest.raises(tenants.TenantUnavailable):
        tenants.run_as_tenant(lambda: connection.schema_name)
    assert connection.schema_name == "public"


@pytest.mark.django_db
def test_a_tenant_that_exists_is_not_forgotten(package):
    with pytest.raises(CommandError, match="'alpha' exists"):
        call_command("mcp", "prune", "--forget-tenant", "alpha")
    call_command("mcp", "prune", "--forget-tenant", "gone", "--json")


@pytest.mark.django_db
def test_the_rows_of_a_deleted_tenant_go(package, monkeypatch, django_capture_on_commit_callbacks):
    deleted = []
    monkeypatch.setattr(cleanup, "delete_tenant", deleted.append)
    with django_capture_on_commit_callbacks(execute=True, using="default"):
        cleanup._tenant_deleted(instance=ROWS["alpha"], using="default")
    assert deleted == ["alpha"]


def test_a_package_of_which_nothing_is_known_enters_nothing():
    unknown = tenants.UnknownContext("It chooses rows.")
    for use in (lambda: unknown.capture(None), lambda: unknown.enter("alpha")):
        with pytest.raises(tenants.ThreadContextError, match="chooses rows"):
            use()


def test_schemas_of_many_tenants_are_dropped(package, monkeypatch):
    monkeypatch.setattr(deferred, "MAX_TENANTS", 2)
    source = Deferred(tenants.current_tenant, what="a tool")
    for name in ("a", "b", "c"):
        with tenants.as_tenant(name):
            assert source.get() == name
    assert len(source._built_for) == 1
    source.renew_lock()
