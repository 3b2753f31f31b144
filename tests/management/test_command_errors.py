"""A command reports an error in one sentence, whatever its arguments are and whatever fails."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import BaseCommand, CommandError, call_command
from django.db import OperationalError, ProgrammingError, connection

from mcp_django.auth.authentication import LocalCaller
from mcp_django.auth.permissions import BasePermission
from mcp_django.exceptions import AuthenticationRequired, ConnectionRefused, InvalidParams
from mcp_django.management.stdio import _authorized_principal
from tests.kit.servers import person
from tests.management.console import attempt, fails, run, server_of

DEEP = "[" * 100_000 + "]" * 100_000


def echo(value: Any) -> str:
    """Say what came."""
    return repr(value)


def add(a: int, b: float = 1.0) -> float:
    """Add."""
    return a + b


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "a=1", "b=NaN"], "b: write a number, not 'NaN'."),
        (["add", "a=1", "b=Infinity"], "b: write a number, not 'Infinity'."),
        (["add", "a=1", "b=1e999"], "b: write a number, not '1e999'."),
        (["add", "a=1", f"b={'9' * 400}"], "The tool 'add' returned an error result."),
        (["add", "a=1", "b:=NaN"], "b: 'NaN' is not valid JSON: NaN is not a JSON number."),
        (["add", "a=1", "b:=[-Infinity]"], "-Infinity is not a JSON number."),
        (["echo", "value:=1e999"], "value: '1e999' is not valid JSON: 1e999 is not a JSON number."),
        (["echo", "--json-args", '{"value": 1e999}'], "1e999 is not a JSON number."),
        (["add", f"a={'9' * 5000}"], "a: write an integer, not '999"),
        (["echo", f"value={DEEP}"], "value: the JSON is nested too deep"),
        (["echo", f"value:={DEEP}"], "value: the JSON is nested too deep"),
        (["echo", "--json-args", DEEP], "--json-args: the JSON is nested too deep"),
        (["echo", "value=caf\udce9"], "value: 'caf\\udce9' is not text in UTF-8."),
        (["echo", 'value:="\\ud800"'], "'\\ud800' is not valid UTF-8; encode it in UTF-8."),
        (["echo", "value=@a\0b"], "value: 'a\\x00b' cannot be read: embedded null byte."),
        (["echo", "value=@/nowhere"], "value: /nowhere cannot be read: No such file"),
        (["ec\0ho"], "There is no component 'ec\\x00ho' on"),
        (["ec\udce9"], "There is no component 'ec\\udce9' on"),
    ],
)
def test_a_hostile_argument_is_told_in_a_sentence(arguments, words):
    server = server_of(echo, add)
    error = fails("call", "--server", server.name, *arguments)
    assert words in error
    # The value may be megabytes long.
    assert len(error) < 500


def test_what_is_no_number_of_json_is_text_where_anything_is_taken():
    server = server_of(echo)
    for text in ("NaN", "1e999", "a\0b"):
        assert run("call", "echo", "--server", server.name, f"value={text}").out == f"{text!r}\n"


def test_a_file_that_cannot_be_named_is_not_written():
    server = server_of()

    @server.resource("x://data", mime_type="application/octet-stream")
    def data() -> bytes:
        """Bytes."""
        return b"\0"

    error = fails("call", "data", "--server", server.name, "--output", "a\0b")
    assert error == "a\0b cannot be written: embedded null byte."


class Mute(Exception):
    """An exception whose `str()` and `repr()` fail."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Fatal(BaseException):
    """An exception that no handler expects."""


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
        (Fatal("over"), "Fatal: over"),
        (Mute(), "Mute"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_whatever_a_component_raises_is_told(exception, message, is_async):
    def tool() -> str:
        """Fail."""
        raise exception

    async def tool_later() -> str:
        """Fail."""
        raise exception

    function: Callable[..., Any] = tool_later if is_async else tool
    server = server_of(function)
    assert fails("call", function.__name__, "--server", server.name) == (
        f"The tool {function.__name__!r} raised {message}\n"
        "Run the command again with --traceback to see where."
    )


class Broken(BasePermission):
    def has_permission(self, principal: Any) -> bool:
        raise ZeroDivisionError("guard broke")


class Nameless(Broken):
    def __str__(self) -> str:
        raise RuntimeError("no name")

    __repr__ = __str__


def closed() -> str:
    """Never used."""
    return "never"


@pytest.mark.parametrize("permission", [Broken, Nameless])
@pytest.mark.parametrize("username", ["ada", None])
@pytest.mark.django_db
def test_a_permission_that_fails_is_named(permission, username):
    person()
    message = (
        f"The permission {permission.__name__} of the %s raised ZeroDivisionError: guard broke\n"
    )
    who = ("--user", username) if username else ()
    server = server_of(closed, permission=permission)
    where = ("--server", server.name, *who)
    assert message % f"server {server.name!r}" in fails("call", "closed", *where)
    if username:
        assert message % f"server {server.name!r}" in fails("list", *where)
        assert message % f"server {server.name!r}" in fails("stdio", *where)
    inner = server_of()
    inner.tool(permission=permission)(closed)
    where = ("--server", inner.name, *who)
    assert message % "tool 'closed'" in fails("call", "closed", *where)
    # Without a caller, the permission is not checked, and is named by its class.
    assert permission.__name__ in run("list", "--server", inner.name).out
    assert permission.__name__ in run("inspect", "closed", "--server", inner.name).out


@pytest.mark.django_db
def test_a_component_that_its_permission_hides_by_failing_says_so():
    person()
    server = server_of()
    server.tool(permission=Broken)(closed)
    out = run("inspect", "closed", "--server", server.name, "--user", "ada").out
    assert "Broken, which raised ZeroDivisionError: guard broke" in " ".join(out.split())


class Refusing(BasePermission):
    """Refuses with an exception of its own, which the tests set."""

    exception: Exception

    def has_permission(self, principal: Any) -> bool:
        raise self.exception


@pytest.mark.django_db
@pytest.mark.parametrize("username", ["ada", None])
@pytest.mark.parametrize("exception", [InvalidParams("Not today."), ConnectionRefused("Not you.")])
def test_a_permission_that_refuses_in_words_of_its_own_is_named(exception, username, monkeypatch):
    person()
    monkeypatch.setattr(Refusing, "exception", exception, raising=False)
    user = ("--user", username) if username else ()
    who = username or "anonymous callers (no --user)"
    server = server_of(closed, permission=Refusing)
    where = ("--server", server.name, *user)
    rejected = f"may not use server {server.name!r}, which needs Refusing."
    assert fails("call", "closed", *where) == f"{who} {rejected}"
    inner = server_of()
    inner.tool(permission=Refusing)(closed)
    assert fails("call", "closed", "--server", inner.name, *user) == (
        f"The tool 'closed' is hidden from {who} by Refusing; a client receives: {exception}"
    )
    if username:
        assert "ada may not use this server." in run("list", *where).out
        assert "ada may not see it: Refusing." in run("inspect", "closed", *where).out
        # The command itself would serve the streams of this process.
        command = BaseCommand(stderr=io.StringIO())
        assert _authorized_principal(command, server, LocalCaller(username="ada")) is None
        assert command.stderr.getvalue() == (
            f"The server {server.name!r} will reject every request: {exception}\n"
        )


@pytest.mark.django_db
def test_a_user_whom_a_permission_tells_to_sign_in_is_not_told_to_name_a_user(monkeypatch):
    person()
    monkeypatch.setattr(Refusing, "exception", AuthenticationRequired("Once more."), raising=False)
    server = server_of()
    server.tool(permission=Refusing)(closed)
    assert fails("call", "closed", "--server", server.name, "--user", "ada") == (
        "The tool 'closed' is hidden from ada by Refusing; a client receives: Once more."
    )


@pytest.mark.parametrize("module", ["no.such.urls", "tests.management.shell.broken_urls"])
def test_a_urlconf_that_cannot_be_imported_is_named(settings, module):
    settings.ROOT_URLCONF = module
    assert fails("list").startswith(f"ROOT_URLCONF {module!r} cannot be imported: ")


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        (OperationalError("no such table: x"), "no such table: x. Did you run manage.py migrate?"),
        (
            ProgrammingError('relation "x" does not exist\nLINE 1: SELECT'),
            'relation "x" does not exist. Did you run manage.py migrate?',
        ),
        (
            ProgrammingError('column x.y of relation "x" does not exist'),
            'column x.y of relation "x" does not exist. Did you run manage.py migrate?',
        ),
        (
            OperationalError("database is locked"),
            "database is locked. Another process is writing to it; try again.",
        ),
        (
            OperationalError('database "x" does not exist'),
            'database "x" does not exist. Run the command again with --traceback to see where.',
        ),
    ],
    ids=str,
)
@pytest.mark.django_db
def test_an_error_of_the_database_names_it_and_the_way_out(exception, message):
    def fail(*args: Any) -> None:
        raise exception

    with connection.execute_wrapper(fail):
        assert fails("token", "list") == f"The database 'default': {message}"


class Failing(io.StringIO):
    """A stream whose device fails."""

    def __init__(self, exception: OSError, *, late: bool) -> None:
        super().__init__()
        self._exception, self._late = exception, late

    def write(self, text: str) -> int:
        if not self._late:
            raise self._exception
        return super().write(text)

    def flush(self) -> None:
        raise self._exception


@pytest.mark.parametrize("late", [False, True])
def test_an_output_that_fails_is_told(late):
    server = server_of(echo)
    arguments = ("call", "echo", "value=1", "--server", server.name)
    for exception, reason in (
        (BrokenPipeError(32, "Broken pipe"), "its reader has closed the pipe"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ):
        with pytest.raises(CommandError) as caught:
            call_command("mcp", *arguments, stdout=Failing(exception, late=late))
        assert str(caught.value) == f"The standard output cannot be written to: {reason}."


def test_a_closed_output_runs_nothing():
    ran = []

    def tool() -> str:
        """Note that it ran."""
        ran.append(True)
        return "done"

    stream = io.StringIO()
    stream.close()
    server = server_of(tool)
    with pytest.raises(CommandError, match="The standard output is closed, so nothing was run"):
        call_command("mcp", "call", "tool", "--server", server.name, stdout=stream)
    assert not ran


def test_what_an_encoding_lacks_is_escaped_as_in_json():
    def tool() -> str:
        """Say what ASCII cannot."""
        return "é 😀"

    server = server_of(tool)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    call_command("mcp", "call", "tool", "--server", server.name, "--json", stdout=stream)
    stream.seek(0)
    assert json.loads(stream.read())["result"]["content"][0]["text"] == "é 😀"


def test_a_closed_input_is_nobody_at_a_terminal():
    server = server_of(echo)
    stdin = io.StringIO()
    stdin.close()
    outcome = attempt("call", "echo", "value=1", "--server", server.name, stdin=stdin)
    assert outcome.out == "1\n"
