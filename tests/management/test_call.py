"""`manage.py mcp call` of components that do not ask anything."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import Group

from mcp_django import ToolError
from mcp_django.auth.permissions import IsStaff
from mcp_django.test import MCPClient
from tests.kit.servers import person
from tests.management.console import attempt, fails, run, server_of


@pytest.mark.django_db
def test_a_tool_is_run_for_real_as_the_user():
    ada = person()
    assert run("call", "add_group", "name=editors", "--user", "ada").out == "Made editors.\n"
    assert Group.objects.filter(name="editors").exists()
    response = json.loads(run("call", "whoami", "--user", "ada", "--json").out)
    structured = MCPClient(user=ada).call_tool("whoami").structured
    assert response["result"]["structuredContent"] == {
        **structured,
        "client": "manage.py mcp call",
    }


@pytest.mark.django_db
@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "a=2", "b=3", "--user", "ada"],
        ["add", "a=2", "--user", "ada", "b=3"],
        ["add", "--user", "ada", "a=2", "b=3"],
        ["--user", "ada", "add", "a=2", "b=3"],
        ["add", "--json-args", '{"a": 2, "b": 9}', "--user", "ada", "b:=3"],
    ],
)
def test_arguments_stand_anywhere(arguments):
    person()
    assert run("call", *arguments).out == "5\n"


@pytest.mark.django_db
def test_an_asynchronous_tool_runs_too():
    person()
    assert run("call", "add_later", "a=2", "--user", "ada").out == "3\n"
    assert run("call", "count_groups_later", "--user", "ada").out == "0\n"


@pytest.mark.django_db
def test_progress_and_log_messages_go_to_the_error_stream():
    person()
    outcome = run("call", "count_to", "n=2", "--user", "ada")
    assert outcome.out == "counted to 2\n"
    assert outcome.err == '[1/2] step 1\n[2/2] step 2\n[info] {"counted": 2}\n'
    outcome = run("call", "count_to_later", "n=1", "--user", "ada", "--json")
    assert json.loads(outcome.out)["result"]["content"][0]["text"] == "counted to 1"
    assert outcome.err == "[1/1]\n[warning counter] done\n"


@pytest.mark.django_db
def test_a_failure_of_the_tool_is_printed_and_ends_with_one():
    person()
    outcome = attempt("call", "fail", "kind=tool", "--user", "ada")
    assert (outcome.out, outcome.status) == ("Try 'ok'.\n", 1)
    assert outcome.error == "The tool 'fail' returned an error result."
    outcome = attempt("call", "takings", "day=soon", "--user", "ada", "--json")
    assert outcome.status == 1
    assert json.loads(outcome.out)["result"]["isError"] is True


@pytest.mark.django_db
def test_a_bug_of_the_tool_is_told_to_its_owner():
    person()
    outcome = attempt("call", "fail", "kind=bug", "--user", "ada")
    assert outcome.error.startswith(
        "The tool 'fail' raised RuntimeError: secret detail at /etc/passwd\n"
    )
    # The answer contains what a client gets, which does not include the details.
    assert "secret" not in outcome.out


@pytest.mark.django_db
def test_an_error_of_the_protocol_is_named_with_its_code():
    person()
    outcome = attempt("call", "shop://groups/none", "--user", "ada", "--json")
    error = json.loads(outcome.out)["error"]
    assert (error["code"], error["data"]) == (-32602, {"uri": "shop://groups/none"})
    assert f"{error['message']} (-32602)" in outcome.error
    assert '{"uri": "shop://groups/none"}' in outcome.error


@pytest.mark.django_db
@pytest.mark.parametrize(
    "arguments",
    [
        ["shop://groups/editors"],
        ["group", "name=editors"],
        ["shop://groups/{name}", "name=editors"],
    ],
)
def test_a_template_is_read_by_uri_or_by_its_variables(arguments):
    person()
    Group.objects.create(name="editors")
    assert run("call", *arguments, "--user", "ada").out == '{"name":"editors"}\n'


@pytest.mark.django_db
def test_a_resource_is_read_by_uri_or_by_name():
    person()
    for name in ("shop://about", "about"):
        assert run("call", name, "--user", "ada").out == "# Shop\n"


@pytest.mark.django_db
def test_a_prompt_is_shown_message_by_message():
    person()
    out = run("call", "apologize", "number=7", "tone=formal", "--user", "ada").out
    assert out == "user:\nApologize for order 7, formal.\n\nassistant:\nOf course.\n"
    # The arguments of a prompt are text, whatever they look like.
    assert "order 7," in run("call", "apologize", "number:=7", "--user", "ada").out


def test_a_client_of_an_open_server_needs_no_user():
    assert run("call", "echo", "text=hello").out == "hello\n"


def test_a_closed_server_says_how_to_get_in():
    assert fails("call", "add", "a=1") == (
        "The tool 'add' is on server 'default', which requires a user (IsAuthenticated): "
        "pass --user USERNAME."
    )
    assert fails("call", "members_tool") == (
        "The tool 'members_tool' requires a user (auth.view_group): pass --user USERNAME."
    )


@pytest.mark.django_db
def test_a_user_who_is_refused_is_told_by_what():
    person()
    assert fails("call", "staff_tool", "--user", "ada") == (
        "ada may not use server 'staff', which needs IsStaff."
    )
    assert fails("call", "secret_tool", "--user", "ada") == (
        "The tool 'secret_tool' is hidden from ada by IsStaff; a client receives: "
        "No tool named 'secret_tool' on server 'default'; see tools/list."
    )
    assert run("call", "scoped_tool", "--user", "ada").out == "scoped\n"


@pytest.mark.django_db
def test_policy_is_not_bypassed():
    person("bob", is_staff=True)
    assert run("call", "staff_tool", "--user", "bob").out == "done\n"
    assert run("call", "secret_tool", "--user", "bob").out == "secret\n"


def test_both_kinds_of_a_name_can_be_called():
    server = server_of()

    def both() -> str:
        """Do it."""
        return "text"

    server.tool(both)
    server.prompt(both)
    assert "--kind prompts" in fails("call", "both", "--server", server.name)
    where = ("--server", server.name, "--kind")
    assert run("call", "both", *where, "tools").out == "text\n"
    assert run("call", "both", *where, "prompts").out == "user:\ntext\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ecko", "text=x"], "There is no component 'ecko'. Did you mean echo"),
        (["echo", "txt=x"], "No argument named 'txt'. Did you mean text?"),
        (["echo", "text"], "'text' is not a valid argument; write name=value."),
        (["echo", "=x"], "'=x' is not a valid argument; write name=value."),
        (["echo", "--json-args", "[]"], "--json-args takes a JSON object"),
        (["echo", "--json-args", "{"], "--json-args: '{' is not valid JSON"),
        (["shop://about", "a=1"], "takes no arguments"),
        (["order", "nunber=1"], "No argument named 'nunber'. Did you mean number?"),
        (["order"], "Pass number=…, or a whole URI."),
        (["apologize", "tne=warm"], "No argument named 'tne'. Did you mean tone?"),
    ],
)
def test_a_mistake_is_named_with_what_is_near(arguments, words):
    assert words in fails("call", *arguments)


def test_a_guard_on_an_open_server_hides_from_those_without_it():
    server = server_of()

    @server.resource("x://vault", permission=IsStaff)
    def vault() -> str:
        """Only staff."""
        raise ToolError("never")

    error = fails("call", "vault", "--server", server.name)
    assert "requires a user (IsStaff): pass --user" in error


def test_ctrl_c_ends_the_call_without_a_traceback():
    server = server_of()

    @server.tool
    def tool() -> str:
        """Do it."""
        raise KeyboardInterrupt

    outcome = attempt("call", "tool", "--server", server.name)
    assert (outcome.error, outcome.status) == ("Interrupted.", 130)
