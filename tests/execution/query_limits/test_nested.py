"""A component within another: a read-only one in one that writes, and the reverse."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from mcp_django import Context
from mcp_django.exceptions import InternalError
from tests.execution.query_limits.reading import count_names, names, still_writes, write_name
from tests.kit.servers import open_to_all, real_client


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_surroundings")
@pytest.mark.parametrize("atomic", [None, True])
def test_a_writing_tool_goes_on_writing_around_what_it_reads(atomic):
    server = open_to_all()

    @server.resource("x://groups", read_only=True)
    def groups() -> str:
        return str(count_names())

    @server.resource("x://bad", read_only=True)
    def bad() -> str:
        return write_name()

    @server.tool(atomic=atomic)
    def work(ctx: Context) -> str:
        contents = [ctx.read_resource("x://groups")[0].content]
        Group.objects.create(name="a")
        contents.append(ctx.read_resource("x://groups")[0].content)
        with pytest.raises(InternalError):
            ctx.read_resource("x://bad")
        Group.objects.create(name="b")
        with transaction.atomic():
            contents.append(ctx.read_resource("x://groups")[0].content)
            Group.objects.create(name="c")
        return " ".join(map(str, contents))

    assert real_client(server=server).call_tool("work").text == "0 1 2"
    assert names() == {"a", "b", "c"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_surroundings")
def test_a_reading_tool_does_not_write_through_another_component():
    server = open_to_all()
    server.resource("x://writes")(write_name)

    @server.resource("x://reads", read_only=True)
    def reads() -> str:
        return str(count_names())

    @server.tool(read_only=True)
    def work(ctx: Context) -> str:
        assert ctx.read_resource("x://reads")[0].content == "0"
        with pytest.raises(InternalError):
            ctx.read_resource("x://writes")
        return "refused"

    assert real_client(server=server).call_tool("work").text == "refused"
    assert still_writes()
