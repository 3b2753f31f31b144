"""Which transactions a component runs in, and what happens after them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.utils import timezone

from mcp_django import Context, MCPServer, ToolError, ToolResult
from mcp_django.execution.threads import run_after_commit
from mcp_django.models import AccessToken
from tests.kit.drivers import message
from tests.kit.servers import open_to_all, person, post, real_client, token_for


def write(name: str, fail: str = "") -> list[int]:
    """Write a row and end in one of several ways."""
    Group.objects.create(name=name)
    failures: dict[str, Exception] = {"tool": ToolError("no"), "bug": RuntimeError("no")}
    if fail in failures:
        raise failures[fail]
    odd: Any = ["x"]
    return odd if fail == "mismatch" else [int(connection.in_atomic_block)]


async def write_later(name: str, fail: str = "") -> list[int]:
    """Write a row from an event loop."""
    return await sync_to_async(write)(name, fail)


def server(**options: Any) -> MCPServer:
    server = open_to_all()
    server.tool("write", **options)(write)
    server.tool("write_later", **options)(write_later)
    server.resource("x://{name}", atomic=options.get("atomic"))(lambda name: write(name, "tool"))
    server.prompt("prompt", atomic=options.get("atomic"))(lambda name: write(name, "tool"))
    return server


@pytest.fixture
def _atomic_requests():
    settings = connections["default"].settings_dict
    settings["ATOMIC_REQUESTS"] = True
    yield
    settings["ATOMIC_REQUESTS"] = False


def kept() -> set[str]:
    return set(Group.objects.values_list("name", flat=True))


@pytest.mark.django_db(transaction=True)
def test_without_a_word_nothing_is_opened():
    client = real_client(server=server())
    assert client.call_tool("write", {"name": "a"}).structured == [0]
    assert client.call_tool("write", {"name": "b", "fail": "tool"}, check=False).is_error
    assert kept() == {"a", "b"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("fail", ["tool", "bug", "mismatch"])
def test_an_atomic_tool_is_rolled_back_by_any_failure(fail):
    client = real_client(server=server(atomic=True))
    assert client.call_tool("write", {"name": "a"}).structured == [1]
    assert client.call_tool("write", {"name": "b", "fail": fail}, check=False).is_error
    assert kept() == {"a"}


@pytest.mark.django_db(transaction=True)
def test_resources_and_prompts_are_rolled_back_too():
    client = real_client(server=server(atomic=True))
    for use in (
        lambda: client.read_resource("x://a"),
        lambda: client.get_prompt("prompt", {"name": "a"}),
    ):
        with pytest.raises(Exception, match="no"):
            use()
    assert kept() == set()


@pytest.mark.django_db(transaction=True)
def test_a_result_that_says_it_failed_keeps_what_was_written():
    server = open_to_all()

    @server.tool(atomic=True)
    def tell() -> ToolResult:
        Group.objects.create(name="a")
        return ToolResult("no", is_error=True)

    assert real_client(server=server).call_tool("tell", check=False).is_error
    assert kept() == {"a"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_atomic_requests")
def test_atomic_requests_surround_the_component_alone():
    client = real_client(server=server())
    assert client.call_tool("write", {"name": "a"}).structured == [1]
    assert client.call_tool("write", {"name": "b", "fail": "tool"}, check=False).is_error
    assert kept() == {"a"}
    opted_out = real_client(server=server(atomic=False))
    assert opted_out.call_tool("write", {"name": "c"}).structured == [0]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_atomic_requests")
def test_rows_of_ours_are_written_outside():
    token, plaintext = token_for(person())
    body = message("tools/call", {"name": "add_group", "arguments": {"name": "a", "fail": True}})
    response = post("/mcp", body, token=plaintext)
    assert response.json()["result"]["isError"]
    assert kept() == set()
    assert AccessToken.objects.get().last_used_at is not None
    assert token.created_at <= timezone.now()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_atomic_requests")
def test_an_async_tool_gets_no_transaction():
    client = real_client(server=server(atomic=True))
    assert client.call_tool("write_later", {"name": "a"}).structured == [0]
    assert client.call_tool("write_later", {"name": "b", "fail": "tool"}, check=False).is_error
    assert kept() == {"a", "b"}


@pytest.mark.django_db
def test_inside_a_transaction_it_is_a_savepoint():
    client = real_client(server=server(atomic=True))
    Group.objects.create(name="before")
    assert client.call_tool("write", {"name": "a", "fail": "tool"}, check=False).is_error
    assert client.call_tool("write", {"name": "b"}).structured == [1]
    assert kept() == {"before", "b"}


@pytest.mark.django_db(transaction=True)
async def test_a_sync_tool_called_from_a_loop_is_atomic_too():
    client = real_client(server=server(atomic=True))
    assert (await client.acall_tool("write", {"name": "a"})).structured == [1]
    assert (await client.acall_tool("write", {"name": "b", "fail": "bug"}, check=False)).is_error
    assert await sync_to_async(kept)() == {"a"}


@pytest.mark.django_db(transaction=True)
def test_a_lazy_answer_reads_what_was_written():
    server = open_to_all()

    @server.tool(atomic=True)
    def lazy() -> Iterator[str]:
        Group.objects.create(name="a")
        assert connection.in_atomic_block
        yield from Group.objects.values_list("name", flat=True)

    assert real_client(server=server).call_tool("lazy").structured == ["a"]


# After the commit -----------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_it_is_done_at_once():
    done: list[int] = []
    run_after_commit(lambda: done.append(1))
    assert done == [1]


@pytest.mark.django_db(transaction=True)
def test_inside_of_one_it_waits_for_the_commit():
    done: list[int] = []
    with transaction.atomic():
        with transaction.atomic():
            run_after_commit(lambda: done.append(1))
        assert done == []
    assert done == [1]


@pytest.mark.django_db(transaction=True)
def test_what_is_rolled_back_is_never_done():
    done: list[int] = []
    server = open_to_all()

    @server.tool(atomic=True)
    def notify(ctx: Context, fail: bool) -> str:
        run_after_commit(lambda: done.append(1))
        if fail:
            raise ToolError("no")
        return "yes"

    client = real_client(server=server)
    assert client.call_tool("notify", {"fail": True}, check=False).is_error
    assert done == []
    assert client.call_tool("notify", {"fail": False}).text == "yes"
    assert done == [1]


@pytest.mark.django_db(transaction=True)
def test_one_failure_after_the_commit_does_not_keep_others_from_it(caplog):
    done: list[int] = []

    def fail() -> None:
        raise RuntimeError("no")

    with transaction.atomic():
        run_after_commit(fail)
        run_after_commit(lambda: done.append(1))
    assert done == [1]
    assert "RuntimeError: no" in caplog.text


async def test_an_event_loop_may_say_so_without_a_database():
    done: list[int] = []
    run_after_commit(lambda: done.append(1))
    assert done == [1]
