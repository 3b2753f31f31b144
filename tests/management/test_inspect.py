"""`manage.py mcp inspect`."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import json
from typing import Annotated, Any

import pytest
from django import forms
from django.contrib.auth.models import Group
from django.db import OperationalError
from pydantic import Field

from mcp_django import ModelTools
from mcp_django.auth.permissions import IsStaff
from mcp_django.protocol.projection import project_tool
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.test import MCPClient
from tests.kit.servers import person
from tests.management.console import fails, run, server_of
from tests.sites.example import mcp as example


def inspected(*arguments: str) -> dict[str, Any]:
    component: dict[str, Any] = json.loads(run("inspect", *arguments, "--json").out)
    return component


@pytest.mark.django_db
def test_the_wire_shape_is_the_entry_that_a_client_finds():
    client = MCPClient(user=person("bob", is_staff=True))
    definitions = {
        **{tool["name"]: tool for tool in client.list_tools()},
        **{resource["uri"]: resource for resource in client.list_resources()},
        **{template["uriTemplate"]: template for template in client.list_resource_templates()},
        **{prompt["name"]: prompt for prompt in client.list_prompts()},
    }
    assert len(definitions) > 20
    for key, definition in definitions.items():
        assert inspected(key, "--server", "default")["wire"] == definition


@pytest.mark.parametrize("version", REVISIONS)
def test_the_wire_shape_is_that_of_the_revision(version):
    newest = inspected("takings")["wire"]
    component = inspected("takings", "--protocol-version", version)
    assert component["protocol_version"] == version
    assert component["wire"] == project_tool(newest, REVISIONS[version])
    assert ("outputSchema" in component["wire"]) == (REVISIONS[version].structured_output != "none")


def test_everything_is_said_of_a_tool():
    component = inspected("takings")
    code = inspect.unwrap(example.takings).__code__
    assert component["code"] == {
        "module": "tests.sites.example.mcp",
        "name": "takings",
        "file": code.co_filename,
        "line": code.co_firstlineno,
    }
    assert component["arguments"] == [
        {"name": "day", "type": "date", "required": True, "description": "The trading day"}
    ]
    assert component["input_schema"] == component["wire"]["inputSchema"]
    assert component["output_schema"] == component["wire"]["outputSchema"]
    assert component["hints"] == {
        "readOnlyHint": True,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert component["audience"] == "Visible to and usable by callers with IsAuthenticated."
    assert component["portability"] == []
    text = run("inspect", "takings").out
    assert f"tests.sites.example.mcp:{code.co_firstlineno} takings()" in text
    assert "  day  date  required  The trading day" in text
    assert "readOnlyHint=true, idempotentHint=true, openWorldHint=false" in text
    assert "on the wire at 2026-07-28" in text
    assert "No problems with known hosts." in text


class UnmigratedForm(forms.Form):
    """Has a field for each row of a table that is not there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        raise OperationalError("no such table: parcels")


def test_a_tool_that_cannot_be_described_is_left_out_with_its_reason():
    server = server_of()

    @server.tool(form=UnmigratedForm)
    def weigh(form: Any) -> str:
        """Weigh a parcel."""
        return "heavy"

    text = run("inspect", "weigh", "--server", server.name).out
    assert "OperationalError: no such table: parcels" in text
    assert "of lists" in text
    assert MCPClient(server=server).list_tools() == []


def test_what_a_host_chokes_on_is_found():
    server = server_of()
    schema = {
        "type": "object",
        "properties": {"x": {"type": ["integer", "null"]}, "many": {"type": "array"}},
        "oneOf": [{"required": ["x"]}, {"required": ["many"]}],
    }

    @server.tool(input_schema=schema)
    def tool(x: Any = None, many: Any = None) -> str:
        """Do it."""
        return ""

    problems = inspected("tool", "--server", server.name)["portability"]
    assert "input: root: combines schemas with oneOf; some hosts drop the tool." in problems
    assert "input: properties/x: has several types; write anyOf." in problems
    assert "input: properties/many: is an array without items." in problems
    text = run("inspect", "tool", "--server", server.name).out
    assert "portability\n  input: root: combines schemas with oneOf" in text


def test_what_was_changed_for_clients_is_named():
    server = server_of()

    @server.tool
    def weigh(code: Annotated[str, Field(pattern=r"^a\-b$")]) -> dt.time:
        """Weigh a parcel."""
        return dt.time(9)

    component = inspected("weigh", "--server", server.name)
    assert component["portability"] == []
    pattern, form = component["changed_for_clients"]
    assert pattern.startswith("input: properties/code: the pattern")
    assert form.startswith("output: root: the format time is in the description (for TypeScript")
    text = run("inspect", "weigh", "--server", server.name).out
    assert "No problems with known hosts." in text
    assert f"changed for clients\n  {pattern}\n  {form}" in text


def test_who_may_see_it_is_said_with_what_guards_it():
    server = server_of(permission=IsStaff)

    @server.tool(permission="auth.view_group", scopes=["groups:read"])
    def tool() -> str:
        """Do it."""
        return ""

    component = inspected("tool", "--server", server.name)
    assert component["permission"] == ["auth.view_group"]
    assert component["server_permission"] == ["IsStaff"]
    assert component["audience"] == (
        "Visible to callers with IsStaff and auth.view_group; usable with the scopes: groups:read."
    )


def test_the_filter_by_scopes_changes_who_sees_it(settings):
    settings.MCP_DJANGO = {"LIST_FILTER": "scopes"}
    component = inspected("scoped_tool")
    assert component["audience"].endswith("with the scopes: orders:write orders:read.")


@pytest.mark.django_db
def test_a_user_is_told_apart_from_one_who_may():
    person()
    person("bob", is_staff=True)
    hidden = inspected("secret_tool", "--user", "ada")["seen_by"]
    shown = inspected("secret_tool", "--user", "bob")["seen_by"]
    assert hidden == {"user": "ada", "is_visible": False, "refused_by": ["IsStaff"]}
    assert shown == {"user": "bob", "is_visible": True, "refused_by": []}
    assert "ada may not see it: IsStaff." in run("inspect", "secret_tool", "--user", "ada").out
    assert "bob may see it." in run("inspect", "secret_tool", "--user", "bob").out


def test_a_template_is_found_by_name_by_template_and_by_uri():
    for name in ("group", "shop://groups/{name}", "shop://groups/editors"):
        component = inspected(name)
        assert (component["kind"], component["uri"]) == ("template", "shop://groups/{name}")
        assert component["completes"] == ["name"]
    text = run("inspect", "group").out
    assert "completes   name" in text
    # Clients do not get its schema, so it is shown separately.
    assert "input schema\n" in text
    assert "portability" not in text


def test_the_arguments_of_a_prompt_are_in_words():
    assert inspected("apologize")["arguments"] == [
        {"name": "number", "type": "string", "required": True, "description": "The order"},
        {
            "name": "tone",
            "type": '"formal" or "warm"',
            "required": False,
            "default": "warm",
            "description": "",
        },
    ]
    assert '  tone    "formal" or "warm"  = "warm"' in run("inspect", "apologize").out


def test_types_are_said_in_words():
    server = server_of()

    @server.tool
    def tool(a: int | None, b: list[int], c: dict[str, int], d: float = 1.5) -> str:
        """Do it."""
        return ""

    types = {
        argument["name"]: argument["type"]
        for argument in inspected("tool", "--server", server.name)["arguments"]
    }
    assert types == {
        "a": "integer or null",
        "b": "array of integer",
        "c": "object",
        "d": "number",
    }


def test_a_name_of_several_kinds_has_to_be_chosen():
    server = server_of()

    def both() -> str:
        """Do it."""
        return ""

    server.tool(both)
    server.prompt(both)
    message = fails("inspect", "both", "--server", server.name)
    assert f"'both' is the name of several components on server {server.name!r}. Choose:" in message
    assert "--kind tools" in message
    assert "--kind prompts" in message
    for kind in ("tool", "prompt"):
        assert inspected("both", "--server", server.name, "--kind", kind)["kind"] == kind


def test_a_name_of_several_resources_has_to_be_chosen_by_uri():
    server = server_of()

    def both() -> str:
        """Do it."""
        return ""

    server.resource("x://a")(both)
    server.resource("x://b")(both)
    assert "use one of: x://a, x://b" in fails("inspect", "both", "--server", server.name)
    assert inspected("x://b", "--server", server.name)["uri"] == "x://b"


def test_a_name_on_several_servers_means_the_default_one():
    server = server_of()

    @server.tool
    def add() -> str:
        """Do something else."""
        return ""

    assert inspected("add")["server"] == "default"
    assert inspected("add", "--server", server.name)["server"] == server.name
    assert inspected("staff_tool")["server"] == "staff"


class Callable:
    def __call__(self) -> str:
        """Do it."""
        return ""


def wrapping(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def test_the_code_is_found_behind_what_wraps_it():
    server = server_of()

    def tool() -> str:
        """Do it."""
        return ""

    server.tool("wrapped")(wrapping(tool))
    server.tool("partial")(functools.partial(tool))
    server.tool("instance")(Callable())
    for name in ("wrapped", "partial"):
        code = inspected(name, "--server", server.name)["code"]
        assert code["line"] == tool.__code__.co_firstlineno
    code = inspected("instance", "--server", server.name)["code"]
    assert (code["name"], code["line"]) == (
        "Callable",
        Callable.__call__.__code__.co_firstlineno,
    )


def test_the_code_of_a_rest_framework_tool_is_its_view():
    viewsets = pytest.importorskip("tests.integrations.rest.viewsets")
    server = server_of()
    server.register_viewset(viewsets.OrderViewSet, basename="order", actions=["retrieve"])
    code = inspected("get_order", "--server", server.name)["code"]
    assert (code["module"], code["name"]) == (viewsets.__name__, "OrderViewSet")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ad", "--server", "default"], "no component 'ad' on server 'default'. Did you mean add"),
        (["shop://abut"], "Did you mean shop://about"),
        (["add", "--kind", "prompts"], "There is no prompt 'add'."),
        (["echo", "--server", "staff"], "There is no component 'echo' on server 'staff'."),
        (["add", "--protocol-version", "2026-07-27"], "Did you mean 2026-07-28"),
        (["add", "--server", "defaut"], "Did you mean default?"),
        (["add", "--kind", "x"], "'x' is not a valid kind"),
        ([], "name"),
    ],
)
def test_a_mistake_is_named_with_what_is_near(arguments, words):
    assert words in fails("inspect", *arguments)


class CrowdMCP(ModelTools[Any]):
    """A class whose tools are generated."""

    fields = ("id", "name")


def test_of_a_generated_tool_the_class_is_shown_that_it_was_made_for():
    server = server_of()
    server.register(Group, CrowdMCP)
    assert inspected("list_groups", "--server", server.name)["code"] == {
        "module": __name__,
        "name": "CrowdMCP",
        "file": __file__,
        "line": inspect.getsourcelines(CrowdMCP)[1],
    }
    nowhere = type("Nowhere", (ModelTools,), {"fields": ["id"], "plural": "a", "name": "b"})
    server.register(Group, nowhere)
    assert inspected("list_a", "--server", server.name)["code"]["line"] is None
