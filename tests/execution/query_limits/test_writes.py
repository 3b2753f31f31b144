"""A component that is declared read-only does not write, and leaves the connection as it was."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from mcp_django import mcp
from mcp_django.exceptions import MCPError
from mcp_django.execution.query_limits import WriteRefused
from mcp_django.test import MCPClient
from tests.execution.query_limits.reading import (
    TOLD,
    count_names,
    decorated,
    names,
    read,
    reader,
    still_writes,
    write_name,
)
from tests.kit.drivers import message
from tests.kit.servers import open_to_all, person, post, real_client, token_for


def create_in_a_block() -> str:
    with transaction.atomic():
        return write_name()


def read_and_create_in_nested_blocks() -> str:
    with transaction.atomic():
        assert count_names() == 0
        with transaction.atomic():
            assert count_names() == 0
        return write_name()


def create_after_a_block() -> str:
    create_twice_the_same_block_read()
    create_twice_the_same_block_read()
    return write_name()


@transaction.atomic
def create_twice_the_same_block_read() -> None:
    assert count_names() == 0


def create_in_a_block_entered_again() -> str:
    decorated(write=False)
    return decorated(write=True)


def create_without_the_orm() -> str:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO auth_group (name) VALUES ('written')")
    return "written"


def update() -> int:
    return Group.objects.update(name="written")


def delete_all() -> int:
    return Group.objects.all()._raw_delete("default")


WRITERS = [
    write_name,
    create_in_a_block,
    read_and_create_in_nested_blocks,
    create_after_a_block,
    create_in_a_block_entered_again,
    create_without_the_orm,
    update,
    delete_all,
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_surroundings")
@pytest.mark.parametrize("atomic", [None, True, False])
def test_a_write_is_refused_and_the_same_connection_writes_again(atomic):
    for writer in WRITERS:
        result = read(writer, atomic=atomic)
        assert result.is_error
        assert result.text == TOLD.replace("write_name", writer.__name__)
        assert still_writes()
        assert not read(count_names).is_error
        assert still_writes()


@pytest.mark.django_db
@pytest.mark.parametrize("writer", WRITERS)
def test_within_the_transaction_of_a_test_too(writer):
    Group.objects.create(name="before")
    server = open_to_all()
    server.tool("reads", read_only=True)(writer)
    server.tool(write_name)
    client = real_client(server=server)
    assert client.call_tool("reads", check=False).is_error
    assert names() == {"before"}
    assert client.call_tool("write_name").text == "written"
    assert names() == {"before", "written"}


@pytest.mark.django_db(transaction=True)
def test_the_log_tells_the_developer_and_the_test_client_raises(caplog):
    sentence = (
        "write_name() is declared read_only and tried to write to auth_group: "
        "remove read_only=True or pass enforce=False."
    )
    with pytest.raises(WriteRefused) as caught:
        MCPClient(server=reader(write_name)).call_tool("write_name")
    assert str(caught.value) == sentence
    assert sentence in caplog.text
    assert still_writes()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("options", [{"enforce": False}, {"read_only": None}, {"read_only": False}])
def test_who_does_not_promise_it_may_write(options):
    assert read(write_name, **options).text == "written"
    assert names() == {"written"}


@pytest.mark.django_db(transaction=True)
def test_resources_prompts_and_completions_are_kept_to_it_too():
    server = open_to_all()

    @server.resource("x://{name}", read_only=True)
    def resource(name: str) -> str:
        return write_name()

    @server.prompt(read_only=True)
    def prompt(name: str) -> str:
        return write_name()

    @server.completion(prompt, "name")
    def complete(value: str) -> list[str]:
        return [write_name()]

    client = real_client(server=server)
    with pytest.raises(MCPError, match="may only read"):
        client.read_resource("x://a")
    with pytest.raises(MCPError, match="may only read"):
        client.get_prompt("prompt", {"name": "a"})
    assert client.complete("prompt", "name", "a") == []
    assert still_writes()


@pytest.mark.django_db(transaction=True)
def test_a_lock_is_a_write_where_the_database_has_locks():
    def lock() -> int:
        with transaction.atomic():
            return len(Group.objects.select_for_update())

    assert read(lock).is_error is bool(connection.features.has_select_for_update)
    assert still_writes()


@pytest.mark.django_db(transaction=True)
def test_the_mount_makes_no_difference():
    mcp.tool(read_only=True)(write_name)
    try:
        _, token = token_for(person())
        body = message("tools/call", {"name": "write_name", "arguments": {}})
        result = post("/mcp", body, token=token).json()["result"]
    finally:
        mcp.unregister(write_name)
    assert result["isError"]
    assert result["content"][0]["text"] == TOLD
    assert still_writes()
