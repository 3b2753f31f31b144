"""Every system check, where it reports a message and where it reports none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import weakref
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import Distribution
from inspect import unwrap
from pathlib import Path
from typing import Annotated, Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core import checks as django_checks
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connections
from django.test import override_settings
from django.urls import clear_url_caches, include, path
from pydantic import Field

from mcp_django import MCPServer, asgi, checks, server as server_module
from mcp_django.auth.permissions import AllowAny, IsAuthenticated, IsStaff
from mcp_django.checks import components, site
from mcp_django.tenants import ThreadContext
from tests.kit.processes import REPOSITORY
from tests.kit.servers import open_to_all
from tests.spec import spec

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ref" / "checks.md"


@dataclass
class Home:
    """Where somebody lives."""

    city: str


@pytest.fixture
def servers(monkeypatch):
    """Register only the servers that the test declares."""
    monkeypatch.setattr(server_module, "_servers", weakref.WeakSet())


def ids(messages: list[CheckMessage]) -> list[str]:
    for message in messages:
        assert message.hint or message.id in {"mcp_django.E003", "mcp_django.E005"}, message
    return [str(message.id).removeprefix("mcp_django.") for message in messages]


def said_of_all() -> list[CheckMessage]:
    """Return the messages of this package's checks under ``check --deploy``."""
    return django_checks.run_checks(tags=[checks.TAG], include_deployment_checks=True)


def described() -> str:
    """Say something."""
    return "x"


async def described_later() -> str:
    """Say something later."""
    return "x"


# Errors ---------------------------------------------------------------------------------------


def installed(folder: Path, name: str, **files: str) -> Distribution:
    """Return a distribution with these files of metadata."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    for file, text in {"METADATA": f"Metadata-Version: 2.1\nName: {name}\n", **files}.items():
        (metadata / file.replace("top_level", "top_level.txt")).write_text(text)
    return Distribution.at(metadata)


PACKED = {"RECORD": "../../bin/x,,\nmcp_django/__init__.py,sha256=x,1\n"}


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ({}, []),
        ({"django-mcp-provider": PACKED}, []),
        ({"django-mcp-provider": PACKED, "mcp-django": PACKED}, ["E001"]),
        ({"mcp-django": {"RECORD": "mcp_django/server.py,,"}}, ["E001"]),
        ({"mcp-django": {"top_level": "x\nmcp_django\n", "RECORD": "x.py,,"}}, ["E001"]),
        ({"other": {"RECORD": "other/mcp_django/__init__.py,,\nmcp_django_x/a.py,,"}}, []),
        ({"other": {"top_level": "other\n", **PACKED}}, []),
        ({"without-files": {}}, []),
    ],
)
def test_a_second_distribution_of_the_package_is_found(monkeypatch, tmp_path, owners, expected):
    made = [installed(tmp_path, name, **files) for name, files in owners.items()]
    monkeypatch.setattr(site, "distributions", lambda: made)
    messages = site.check_distribution(None)
    assert ids(messages) == expected
    if messages:
        assert "mcp-django" in messages[0].msg
        assert str(messages[0].hint).startswith("pip uninstall mcp-django;")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, []),
        ({"PAGE_SIZE": 5}, []),
        ({"PAGE_SIZ": 5, "THREADS": 0}, ["E002", "E002"]),
        (5, ["E002"]),
    ],
)
def test_a_wrong_setting_is_found(values, expected):
    with override_settings(MCP_DJANGO=values):
        assert ids(site.check_settings(None)) == expected
        if expected:
            # The other checks need valid settings, so only this one reports.
            assert ids(said_of_all()) == expected


# Declarations of the site take their defaults from MCP_DJANGO, which they read when imported.
DECLARED = {
    "settings.py": """
from tests.settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "wrong.site"]
ROOT_URLCONF = "wrong.site.urls"
MCP_DJANGO = {values}
""",
    "admin.py": """
from django.contrib import admin
from django.contrib.auth.models import Permission

@admin.register(Permission)
class PermissionAdmin(admin.ModelAdmin):
    actions = ["forget"]

    @admin.action(description="Forget %(verbose_name_plural)s")
    def forget(self, request, queryset): ...
""",
    "mcp.py": """
from django.contrib.auth.models import Permission
from mcp_django import MCPServer, mcp

beside = MCPServer("beside", auth=[*mcp.auth, "session"], page_size=mcp.page_size)
mcp.register_admin(Permission, actions=["forget"])
""",
    "apps.py": """
from django.apps import AppConfig

class SiteConfig(AppConfig):
    name = "wrong.site"
    label = "wrong_site"

    def ready(self):
        from django.contrib.auth.models import Permission
        from wrong.site.mcp import beside

        beside.register_admin(Permission, actions=["forget"])
""",
    "urls.py": """
from django.apps import apps
from django.urls import include, path
from tests.sites.example.urls import urlpatterns as others
from wrong.site.mcp import beside

urlpatterns = [
    *others,
    path("beside/mcp", beside.urls),
    path("", include("mcp_django.urls")),
]
if apps.is_installed("mcp_django.oauth"):
    urlpatterns.append(path("", include("mcp_django.oauth.urls")))
""",
}
JSON = "application/json"
MISSPELLED = "{'PAGE_SIZ': 5, 'RATE': 'x/y'}"


def run_wrong_site(place: Path, values: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a site with these settings, in a process of its own."""
    (place / "wrong" / "site").mkdir(parents=True)
    for name, text in DECLARED.items():
        (place / "wrong" / "site" / name).write_text(text.replace("{values}", values))
    site = {"DJANGO_SETTINGS_MODULE": "wrong.site.settings", "PYTHONPATH": str(place)}
    database = {"MCP_TEST_DATABASE": str(place / "database")}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=REPOSITORY,
        env={**os.environ, **site, **database},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.outside
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (MISSPELLED, ["no key 'PAGE_SIZ'", "'x/y' is not a valid rate"]),
        ("5", ["MCP_DJANGO is not a dictionary"]),
        ("{'LIMITS': {'row': 5}, 'PAGE_SIZE': 'many'}", ["['LIMITS']['row']", "['PAGE_SIZE']"]),
        ("{'OAUTH': {'APP_REDIRECTS': 5}}", ["['OAUTH']['APP_REDIRECTS']"]),
        ("{'SCOPES': ['read']}", ["MCP_DJANGO['SCOPES']"]),
        ("{'ADMIN_BASE_CLASS': 'theme.Admin'}", ["'theme.Admin', which cannot be imported: No"]),
        ("{'ADMIN_BASE_CLASS': 'os.path.join'}", ["which is not a subclass of ModelAdmin"]),
        ("{'ADMIN_BASE_CLASS': '.Admin'}", ["'.Admin' is not a dotted path"]),
        ("{'AUTH': ['..auth.Backend']}", ["'..auth.Backend' is not a dotted path"]),
    ],
)
def test_a_wrong_setting_is_found_on_a_site_with_an_admin(values, words, tmp_path):
    done = run_wrong_site(tmp_path, values, "django", "check", "--deploy")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("(mcp_django.E002) MCP_DJANGO") == len(words)
    for word in words:
        assert word in done.stderr


@pytest.mark.django_db
@pytest.mark.usefixtures("servers")
def test_a_theme_that_was_not_usable_when_it_was_needed_is_an_error(monkeypatch):
    # As in a circular import: the class can be imported when the check runs.
    admin_base = pytest.importorskip("mcp_django.admin_base")
    problem = "MCP_DJANGO['ADMIN_BASE_CLASS'] is 'theme.Admin', which cannot be imported: a circle."
    monkeypatch.setattr(admin_base, "theme_problem", problem)
    (error,) = [message for message in said_of_all() if message.id == "mcp_django.E002"]
    assert error.msg == problem


@pytest.mark.outside
@pytest.mark.parametrize("command", [("check",), ("migrate",), ("runserver", "--noreload", "0")])
def test_a_command_that_checks_says_what_is_wrong_with_the_settings(command, tmp_path):
    done = run_wrong_site(tmp_path, MISSPELLED, "django", *command)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("(mcp_django.E002) MCP_DJANGO") == 2


@pytest.mark.outside
def test_a_command_of_ours_says_what_is_wrong_with_the_settings(tmp_path):
    done = run_wrong_site(tmp_path, "{'PAGE_SIZ': 5}", "django", "mcp", "list")
    assert done.returncode == 1
    expected = "CommandError: MCP_DJANGO has no key 'PAGE_SIZ'. Did you mean 'PAGE_SIZE'?"
    assert done.stderr.splitlines() == [expected]


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/mcp", "/staff/mcp"])
def test_what_serves_raises_while_a_setting_is_wrong(client, path):
    with (
        override_settings(MCP_DJANGO={"PAGE_SIZ": 5}),
        pytest.raises(ImproperlyConfigured, match=re.escape("Did you mean 'PAGE_SIZE'?")),
    ):
        client.post(path, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, JSON)


async def test_what_serves_asgi_raises_while_a_setting_is_wrong():
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "headers": [(b"host", b"testserver"), (b"content-type", JSON.encode())],
    }
    server = ApplicationCommunicator(asgi.get_asgi_application(), scope)
    with override_settings(MCP_DJANGO={"PAGE_SIZ": 5}):
        await server.send_input({"type": "http.request", "body": b"{}"})
        with pytest.raises(ImproperlyConfigured, match=re.escape("Did you mean 'PAGE_SIZE'?")):
            await server.wait()


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        (["tokens", "session"], []),
        ([], []),
        (["tokns"], ["E003"]),
        (["tests.nowhere.Backend", "django.http.Http404"], ["E003", "E003"]),
    ],
)
def test_a_backend_that_is_none_is_found(auth, expected):
    server = MCPServer("inline", auth=auth)
    messages = site.check_backends(None)
    assert ids(messages) == expected
    assert all(message.obj is server for message in messages)


@pytest.mark.usefixtures("servers")
def test_two_servers_of_one_name_are_found():
    kept = [MCPServer("a"), MCPServer("b")]
    assert ids(components.check_server_names(None)) == []
    kept.append(MCPServer("a"))
    (message,) = components.check_server_names(None)
    assert message.id == "mcp_django.E004"
    assert message.msg == "There are 2 servers named 'a'."


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("permission", "expected"),
    [
        (IsStaff, []),
        ("auth.view_group", []),
        ([IsStaff, "auth.view_group"], []),
        (None, []),
        ("codename", ["E005"]),
        ("a.b.c", ["E005"]),
        (5, ["E005"]),
        ({"a": 1}, ["E005"]),
        (object, ["E005"]),
        ([IsStaff, 5], ["E005"]),
    ],
)
def test_a_permission_that_is_none_is_found(permission, expected):
    server = open_to_all()
    server.tool("tool", permission=permission)(described)
    messages = components.check_permissions(None)
    assert ids(messages) == expected
    assert all("tool 'tool'" in message.msg for message in messages)


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("permission", ["codename", 5, {"a": 1}, object])
def test_a_permission_of_a_server_that_is_none_is_found(permission):
    server = MCPServer("inline", permission=permission)
    (message,) = components.check_permissions(None)
    assert (message.id, message.obj) == ("mcp_django.E005", server)


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("server", "component", "expected"),
    [
        (AllowAny, AllowAny, []),
        (AllowAny, IsStaff, []),
        (IsAuthenticated, IsStaff, []),
        (IsAuthenticated, None, []),
        (IsAuthenticated, AllowAny, ["E006"]),
        ("auth.view_group", [AllowAny], ["E006"]),
        ([AllowAny, IsStaff], AllowAny, ["E006"]),
    ],
)
def test_a_component_that_opens_its_server_is_found(server, component, expected):
    kept = MCPServer("inline", permission=server)
    kept.resource("x://x", permission=component)(described)
    assert ids(components.check_permissions(None)) == expected


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, []),
        ("example/briefing.txt", []),
        ("example/missing.txt", ["E007"]),
        ("example/broken.txt", ["E007"]),
    ],
)
def test_a_template_that_is_missing_or_broken_is_found(settings, template, expected):
    settings.TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "loaders": [
                    (
                        "django.template.loaders.locmem.Loader",
                        {"example/briefing.txt": "{{ x }}", "example/broken.txt": "{% if %}"},
                    )
                ]
            },
        }
    ]
    server = open_to_all()
    server.prompt("prompt", template=template)(described)
    assert ids(components.check_prompt_templates(None)) == expected


# Warnings -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("servers")
def test_a_component_without_description_is_found():
    server = open_to_all()
    server.tool("told")(described)
    server.tool("passed", description="Told.")(lambda: "x")
    assert ids(components.check_descriptions(None)) == []
    server.tool("untold")(lambda: "x")
    (message,) = components.check_descriptions(None)
    assert (message.id, message.msg) == ("mcp_django.W001", "The tool 'untold' has no description.")


@spec("RSC-8")
@pytest.mark.usefixtures("servers")
def test_a_resource_that_hosts_would_fetch_by_themselves_is_found():
    server = open_to_all()
    server.resource("httpsx://a")(described)
    server.resource("file:///etc/https:")(described)
    assert components.check_uri_schemes(None) == []
    server.resource("HTTPS://example.com/a")(described)
    server.resource("http://example.com/{name}")(lambda name: name)
    first, second = components.check_uri_schemes(None)
    assert first.id == second.id == "mcp_django.I002"
    assert "has the URI 'https://example.com/a', which hosts may fetch" in first.msg
    assert "has the URI 'http://example.com/{name}', which" in second.msg


@pytest.mark.usefixtures("servers")
def test_an_async_function_that_wants_a_transaction_is_found():
    server = open_to_all()
    server.tool("sync", atomic=True)(described)
    server.tool("later")(described_later)
    server.tool("no", atomic=False)(described_later)
    assert ids(components.check_async_transactions(None)) == []
    server.tool("both", atomic=True)(described_later)
    assert ids(components.check_async_transactions(None)) == ["W002"]


@pytest.mark.usefixtures("servers")
def test_a_database_that_does_not_reject_writes_is_found(monkeypatch):
    server = open_to_all()
    server.tool("reads", read_only=True)(described)
    for vendor in ("sqlite", "postgresql", "mysql"):
        monkeypatch.setattr(type(connections["default"]), "vendor", vendor)
        assert ids(components.check_read_only_databases(None)) == []
    monkeypatch.setattr(type(connections["default"]), "vendor", "oracle")
    (message,) = components.check_read_only_databases(None)
    assert message.id == "mcp_django.W025"
    assert "'default' (oracle)" in message.msg
    assert "tool 'reads'" in message.msg
    server.unregister(described)
    server.tool("writes")(described)
    server.tool("trusted", read_only=True, enforce=False)(described)
    assert ids(components.check_read_only_databases(None)) == []


class DryRun:
    """A dry run."""

    def is_dry_run(self, arguments: Any) -> bool:
        """Return whether the arguments ask for a dry run."""
        return False

    def to_dry_run(self, arguments: Any) -> Any:
        """Return the arguments of a dry run."""
        return arguments


REALTIME = "haystack.signals.RealtimeSignalProcessor"
ELASTIC = "django_elasticsearch_dsl.signals"


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("app", "values", "expected"),
    [
        ("haystack", {"HAYSTACK_SIGNAL_PROCESSOR": REALTIME}, ["W027"]),
        ("haystack", {"HAYSTACK_SIGNAL_PROCESSOR": "haystack.signals.BaseSignalProcessor"}, []),
        ("haystack", {}, []),
        ("django_elasticsearch_dsl", {}, ["W027"]),
        ("django_elasticsearch_dsl", {"ELASTICSEARCH_DSL_AUTOSYNC": False}, []),
        (
            "django_elasticsearch_dsl",
            {"ELASTICSEARCH_DSL_SIGNAL_PROCESSOR": f"{ELASTIC}.CelerySignalProcessor"},
            [],
        ),
        ("django_opensearch_dsl", {}, ["W027"]),
        ("algoliasearch_django", {}, ["W027"]),
        ("wagtail.search", {}, []),
        ("wagtail.search", {"WAGTAILSEARCH_BACKENDS": {"default": {"BACKEND": "x"}}}, ["W027"]),
        (
            "wagtail.search",
            {"WAGTAILSEARCH_BACKENDS": {"default": {"BACKEND": "x", "AUTO_UPDATE": False}}},
            [],
        ),
        ("wagtail.contrib.frontend_cache", {}, []),
        ("wagtail.contrib.frontend_cache", {"WAGTAILFRONTENDCACHE": {"cdn": {}}}, ["W027"]),
        ("another", {"HAYSTACK_SIGNAL_PROCESSOR": REALTIME}, []),
    ],
)
def test_an_index_that_previews_reach_is_found(monkeypatch, settings, app, values, expected):
    monkeypatch.setattr(components.apps, "is_installed", lambda name: name == app)
    for name, value in values.items():
        setattr(settings, name, value)
    server = open_to_all()
    server.tool("plain")(described)
    assert ids(components.check_previews(None)) == []
    server.add(replace(server.tools["plain"], name="previewed", dry_run=DryRun()))
    assert ids(components.check_previews(None)) == expected


@pytest.mark.parametrize(("middleware", "expected"), [([], []), (["a.b.Middleware"], ["W003"])])
def test_middleware_without_a_synchronous_form_is_found(monkeypatch, middleware, expected):
    monkeypatch.setattr(site, "async_only_middleware", lambda: middleware)
    assert ids(site.check_middleware(None)) == expected


@pytest.mark.parametrize(
    ("hosts", "values", "expected"),
    [
        (["shop.test"], {}, []),
        (["*"], {}, ["W004"]),
        (["*"], {"BASE_URL": "https://shop.test"}, []),
        (["*"], {"ALLOWED_ORIGINS": ["https://shop.test"]}, []),
    ],
)
def test_a_wildcard_host_without_origins_is_found(hosts, values, expected):
    with override_settings(ALLOWED_HOSTS=hosts, MCP_DJANGO=values):
        assert ids(site.check_origins(None)) == expected


SQLITE = {"ENGINE": "django.db.backends.sqlite3"}
POSTGRES = {"ENGINE": "django.db.backends.postgresql"}


class Configured:
    """Stand-in for `django.conf.settings`, which leaves the connections of this process alone."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


@pytest.mark.parametrize(
    ("database", "expected"),
    [
        (SQLITE, ["W005"]),
        ({**SQLITE, "OPTIONS": None}, ["W005"]),
        ({**SQLITE, "OPTIONS": {"transaction_mode": "DEFERRED"}}, ["W005"]),
        ({**SQLITE, "OPTIONS": {"transaction_mode": "IMMEDIATE"}}, []),
        ({**SQLITE, "OPTIONS": {"transaction_mode": "exclusive"}}, []),
        (POSTGRES, []),
    ],
)
def test_sqlite_that_begins_with_a_read_is_found(monkeypatch, database, expected):
    monkeypatch.setattr(site, "django_settings", Configured(DATABASES={"default": database}))
    messages = site.check_sqlite(None)
    assert ids(messages) == expected
    for message in messages:
        hint = """Set DATABASES['default']["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}."""
        assert message.hint == hint


@pytest.mark.parametrize(
    ("application", "age", "expected"),
    [
        ("site.asgi.application", 0, []),
        ("site.asgi.application", 60, ["W006"]),
        ("site.asgi.application", None, ["W006"]),
        (None, 60, []),
    ],
)
def test_connections_that_persist_under_asgi_are_found(monkeypatch, application, age, expected):
    databases = {"default": {**POSTGRES, "CONN_MAX_AGE": age}, "other": POSTGRES}
    configured = Configured(DATABASES=databases, ASGI_APPLICATION=application)
    monkeypatch.setattr(site, "django_settings", configured)
    assert ids(site.check_persistent_connections(None)) == expected


ENTERING = {"THREAD_CONTEXT": "tests.checks.test_checks.Entering"}


class Entering(ThreadContext):
    """Enters nothing."""

    def capture(self, request: Any) -> str:
        return ""

    def enter(self, tenant: str) -> nullcontext[None]:
        return nullcontext()


class Unfinished(ThreadContext):
    """Has no methods."""


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("packages", "values", "message"),
    [
        (["django_pgschemas"], {}, "django_pgschemas chooses the rows of a request"),
        (["django_tenants"], {}, "django_tenants chooses the rows of a request"),
        (
            ["django_pgschemas", "tenant_schemas"],
            {"KEEP_CONNECTIONS": True},
            "django_pgschemas and tenant_schemas choose",
        ),
        (["django_pgschemas"], ENTERING, ""),
        ([], {"KEEP_CONNECTIONS": True, **ENTERING}, "KEEP_CONNECTIONS is True"),
        ([], {"KEEP_CONNECTIONS": True}, ""),
        (["django_pgschemas"], {"KEEP_CONNECTIONS": True, "THREAD_CONTEXT": False}, ""),
        ([], {"THREAD_CONTEXT": "tests.nowhere.Context"}, "cannot be used: 'tests.nowhere."),
        ([], {"THREAD_CONTEXT": "tests.checks.test_checks.ids"}, "cannot be used: 'tests.checks."),
        (
            [],
            {"THREAD_CONTEXT": "tests.checks.test_checks.Unfinished"},
            "abstract class Unfinished",
        ),
        ([], {"THREAD_CONTEXT": "builtins.dict"}, "'builtins.dict', which is not a class derived"),
    ],
)
def test_tenants_that_cannot_be_told_or_kept_are_found(settings, packages, values, message):
    settings.MIDDLEWARE = [f"{package}.middleware.Tenants" for package in packages]
    settings.MCP_DJANGO = values
    problems = site.check_tenants(None)
    assert ids(problems) == (["E018"] if message else [])
    assert message in "".join(problem.msg for problem in problems)


@pytest.mark.django_db
@pytest.mark.usefixtures("servers")
def test_other_checks_look_at_the_code_where_no_tenant_can_be_told(settings):
    settings.MCP_DJANGO = {"THREAD_CONTEXT": "tests.nowhere.Context"}
    MCPServer("shop", permission=AllowAny)
    assert "E018" in ids(django_checks.run_checks(tags=[checks.TAG]))


@pytest.mark.usefixtures("servers")
def test_what_mixes_tenants_is_found(settings):
    pytest.importorskip("oauth2_provider")
    MCPServer("shop", auth=["tokens", "oauth", "session"])
    assert site.check_tenants(None) == []
    settings.MCP_DJANGO = ENTERING
    assert site.check_tenants(None) == []
    settings.MIDDLEWARE = ["django_rls.middleware.RLSContextMiddleware"]
    [problem] = site.check_tenants(None)
    assert "RLSContextMiddleware takes the tenant from the user" in problem.msg
    settings.MIDDLEWARE = []
    settings.TENANT_APPS = ["django.contrib.auth", "mcp_django.apps.MCPConfig"]
    text = "".join(problem.msg for problem in site.check_tenants(None))
    assert "mcp_django is an app of each tenant" in text
    assert "list both in TENANT_APPS" in text
    settings.TENANT_APPS = ["django.contrib.auth", "oauth2_provider", "mcp_django.oauth"]
    assert site.check_tenants(None) == []


def test_each_id_belongs_to_one_check():
    source = "".join(path.read_text() for path in Path(checks.__path__[0]).glob("*.py"))
    ids_of_checks = re.findall(r'@system_check\(\s*[\w.]+,\s*"([^"]+)"', source)
    assert len(ids_of_checks) == source.count("@system_check(")
    assert len(ids_of_checks) == len({*ids_of_checks})


@pytest.mark.django_db
@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("values", "auth", "reason"),
    [
        ({"CONFIRM_SECONDS": 1}, ["tokens"], None),
        # Reported by another check.
        (
            {"CONFIRM_SECONDS": 1},
            ["tests.nowhere.Backend"],
            "AUTH contains 'tests.nowhere.Backend'",
        ),
        ({}, ["tokens", "session"], None),
        ({"CONFIRM_SECONDS": 1}, ["tokens", "session"], "AUTH contains 'session'"),
        (
            {"CONFIRM_SECONDS": 1, "OAUTH": {"CAN_CONNECT": "tests.nowhere.rule"}},
            ["tokens"],
            "OAUTH['CAN_CONNECT'] is set",
        ),
    ],
)
def test_callers_that_are_looked_up_on_each_request_are_noted(settings, values, auth, reason):
    settings.MCP_DJANGO = values
    server = MCPServer("noted", auth=auth)
    messages = [message for message in said_of_all() if message.id == "mcp_django.I004"]
    without_deploy = django_checks.run_checks(tags=[checks.TAG])
    assert "mcp_django.I004" not in [message.id for message in without_deploy]
    assert ids(messages) == ([] if reason is None else ["I004"])
    for note in messages:
        assert note.msg == (
            f"Callers of the server {server.name!r} are looked up on each request: {reason}."
        )


@pytest.mark.usefixtures("servers")
def test_a_backend_that_cannot_be_imported_is_reported_elsewhere(settings, monkeypatch):
    def fail(backends: tuple[str, ...], upstream: str) -> str:
        raise ImproperlyConfigured("no toolkit")

    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1}
    server = MCPServer("noted", auth=["oauth"])
    monkeypatch.setattr(site, "why_not_cached", fail)
    assert site.note_uncached_callers(None) == []
    assert server.auth


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("permission", "options", "general", "expected"),
    [
        (AllowAny, {}, (), ["W020"]),
        ([AllowAny], {}, (), ["W020"]),
        (AllowAny, {"rate": "60/m"}, (), []),
        (AllowAny, {}, "60/m", []),
        (IsAuthenticated, {}, (), []),
        ([AllowAny, IsStaff], {}, (), []),
    ],
)
def test_a_server_for_anybody_needs_a_rate(permission, options, general, expected, settings):
    settings.MCP_DJANGO = {"RATE": general}
    server = MCPServer("inline", permission=permission, **options)
    assert components.check_open_servers(None) == []
    server.tool(described)
    assert ids(components.check_open_servers(None)) == expected


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("backend", "rate", "expected"),
    [
        ("django.core.cache.backends.locmem.LocMemCache", "5/m", ["W022"]),
        ("django.core.cache.backends.dummy.DummyCache", "5/m", ["W022"]),
        ("django.core.cache.backends.redis.RedisCache", "5/m", []),
        ("django.core.cache.backends.locmem.LocMemCache", (), []),
    ],
)
def test_a_rate_needs_a_cache_that_all_processes_share(backend, rate, expected, monkeypatch):
    caches = {"default": {"BACKEND": backend}}
    monkeypatch.setattr(components, "settings", Configured(CACHES=caches))
    assert components.check_rate_cache(None) == []
    open_to_all().tool(rate=rate)(described)
    messages = components.check_rate_cache(None)
    assert ids(messages) == expected
    assert all(backend in message.msg for message in messages)


# All of them ----------------------------------------------------------------------------------


def test_the_checks_run_with_the_others():
    registered = django_checks.registry.registry.get_checks(include_deployment_checks=True)
    ours = {*checks.FIRST, *checks.ALL, *checks.DEPLOY, *checks.DATABASE}
    functions = {*map(unwrap, ours)}
    for module in (components, site):
        assert functions >= {
            function for name, function in vars(module).items() if name.startswith("check_")
        }
    assert ours <= set(registered)


def test_apps_that_are_ready_twice_say_nothing_twice():
    before = django_checks.registry.registry.get_checks(include_deployment_checks=True)
    checks.register_all()
    after = django_checks.registry.registry.get_checks(include_deployment_checks=True)
    assert len(after) == len(before)


@pytest.mark.django_db
def test_a_site_without_mistakes_passes(servers):
    with override_settings(SILENCED_SYSTEM_CHECKS=["mcp_django.W005"]):
        call_command("check", "--tag", "mcp_django", "--fail-level", "WARNING")


def test_the_page_lists_every_check():
    folder = Path(checks.__file__).parent
    source = "".join(file.read_text() for file in folder.glob("*.py"))
    used = set(re.findall(r'"mcp_django\.([EWI]\d{3})"', source))
    documented = set(re.findall(r"([EWI]\d{3}):", source))
    rows = re.findall(
        r"^\| `mcp_django\.([EWI]\d{3})` \| .+ \| .+ \|$", PAGE.read_text(), re.MULTILINE
    )
    assert sorted(used, key=lambda number: ("EWI".index(number[0]), number)) == rows
    assert used == documented


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("permission", "hint"),
    [
        (None, None),
        (IsStaff, None),
        ("auth.view_group", None),
        (["auth.change_user", IsStaff], None),
        ("auth.veiw_group", "Did you mean 'auth.view_group'?"),
        (["auth.view_group", "nobody.does"], "Write 'app_label.codename'."),
    ],
)
def test_a_permission_of_no_model_is_found(permission, hint):
    server = open_to_all()
    server.tool("guarded", permission=permission)(described)
    messages = components.check_codenames(None)
    assert [(message.id, message.hint) for message in messages] == (
        [("mcp_django.W007", hint)] if hint else []
    )


@pytest.mark.parametrize(
    ("route", "expected"), [("mcp", []), ("mcp/", ["W008"]), ("deep/<int:tenant>/", ["W008"])]
)
def test_an_endpoint_mounted_with_a_slash_is_found(monkeypatch, settings, route, expected):
    from tests.sites.example import urls

    server = open_to_all()
    monkeypatch.setattr(urls, "urlpatterns", [path("in/", include([path(route, server.urls)]))])
    settings.ROOT_URLCONF = "tests.sites.example.urls"
    clear_url_caches()
    messages = site.check_mounts(None)
    assert ids(messages) == expected
    if expected:
        assert f"path({route.rstrip('/')!r}," in str(messages[0].hint)
    clear_url_caches()


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    ("name", "expected"),
    [("cardNo", []), ("city", []), ("card", ["W017"]), ("crad", ["W017"])],
)
def test_what_is_to_be_hidden_and_is_not_there_is_found(name, expected):
    server = open_to_all()

    def pay(card: Annotated[str, Field(alias="cardNo")], home: Home | None = None) -> None:
        """Pay."""

    server.tool(sensitive=[name])(pay)
    assert ids(components.check_sensitive(None)) == expected


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(("length", "expected"), [(40, []), (41, ["W023"])])
def test_a_name_that_some_hosts_do_not_accept_is_found(length, expected):
    server = open_to_all()

    @server.tool("n" * length)
    def pay() -> None:
        """Pay."""

    messages = components.check_tool_names(None)
    assert ids(messages) == expected
    if expected:
        assert "has 41 characters" in messages[0].msg


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("kind", ["tools", "prompts", "resource templates"])
def test_a_list_that_needs_a_second_page_is_found(kind):
    shop = open_to_all()
    for number in range(4):
        text = "x" * 240_000
        if kind == "tools":
            shop.tool(f"a{number}", description=text)(described)
        elif kind == "prompts":
            shop.prompt(f"a{number}", description=text)(described)
        else:
            shop.resource(f"x://{number}/{{v}}", description=text)(lambda v: v)
    # Resources come in pages anyway.
    shop.resource("x://long", description="x" * 2_000_000)(described)
    shop.resource("x://longer", description="x" * 2_000_000)(described)
    assert not components.check_lists(None)
    with override_settings(MCP_DJANGO={"MAX_EVENT_BYTES": 1_000_000}):
        [problem] = components.check_lists(None)
    assert problem.id == "mcp_django.W024"
    assert problem.msg.startswith(f"The list of the 4 {kind} of the server 'inline' has 960")
    assert problem.msg.endswith("a page has at most 937500.")
    with override_settings(MCP_DJANGO={"MAX_EVENT_BYTES": None}):
        assert not components.check_lists(None)


@pytest.mark.usefixtures("servers")
def test_where_any_name_may_come_any_may_be_hidden():
    server = open_to_all()

    def pay(details: dict[str, str]) -> None:
        """Pay."""

    server.tool(sensitive=["card"])(pay)
    assert not components.check_sensitive(None)


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(("engine", "expected"), [(None, ["W009"]), ("jsonschema", [])])
def test_a_schema_that_nothing_checks_is_found(monkeypatch, engine, expected):
    server = open_to_all()
    server.tool("signed")(described)
    server.tool("written", input_schema={"type": "object"})(described)
    monkeypatch.setattr(components, "validation_engine", lambda: engine)
    messages = components.check_validation(None)
    assert ids(messages) == expected
    for message in messages:
        assert "tool 'written'" in message.msg
        assert "pip install jsonschema-rs" in str(message.hint)


@pytest.mark.parametrize(
    ("wanted", "layers", "expected"),
    [
        (None, {}, []),
        (None, {"default": {}}, []),
        (None, {"other": {}}, ["E008"]),
        ("bell", {"bell": {}}, []),
        ("bell", {"default": {}}, ["E008"]),
        ("bell", {}, ["E008"]),
    ],
)
def test_a_channel_layer_that_is_not_configured_is_found(wanted, layers, expected):
    mcp_django = {"CHANNEL_LAYER": wanted} if wanted else {}
    with override_settings(MCP_DJANGO=mcp_django, CHANNEL_LAYERS=layers):
        assert ids(site.check_channel_layer(None)) == expected
