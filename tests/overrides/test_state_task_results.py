"""Results of tasks whose tool has been overridden or disabled in the meantime."""

from __future__ import annotations

import pytest

from mcp_django import Context, MCPServer
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import person, token_for
from tests.overrides.site import decide
from tests.tasks.shop import call, make_worker, send, text_of

__all__ = ["make_worker"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("unpinned")]

attic = MCPServer("attic")


@attic.tool(task="optional", aliases=["look"])
def search() -> str:
    """Search."""
    return "a box"


@attic.tool(task="optional")
def sweep() -> str:
    """Sweep, so that there are tasks while the other tool is off."""
    return "swept"


def test_they_are_not_there_until_it_is_on_again():
    client = MCPClient(
        server=attic, user=person(), protocol_version="2025-11-25", raise_exceptions=False
    )
    made = client.call_tool("search", as_task=True).task_id
    # Wait for the task, which might otherwise run while the tool is off.
    assert client.task_result(made).text == "a box"

    def listed() -> list[str]:
        return [task["taskId"] for task in client.request("tasks/list")["tasks"]]

    assert listed() == [made]
    decide("attic", "search", is_enabled=False)
    assert listed() == []
    for method in ("tasks/get", "tasks/result"):
        with pytest.raises(ErrorResponse, match="among your tasks") as caught:
            client.request(method, {"taskId": made})
        assert caught.value.code == INVALID_PARAMS
    decide("attic", "search", is_enabled=True)
    assert listed() == [made]
    assert client.task_result(made).text == "a box"


@pytest.mark.parametrize(
    ("decided", "message"),
    [
        ({"approval": "staff"}, "sell requires approval now; call it again."),
        ({"groups": ["sellers"]}, "No tool named 'sell'"),
        ({"is_enabled": False}, "No tool named 'sell'"),
        ({"description": "Sell it."}, "Sold to Eve."),
    ],
)
def test_what_is_decided_before_a_run_holds_for_it(worker, decided, message):
    server = MCPServer("inline", scopes=[])
    _, token = token_for(person())

    @server.tool(task="optional")
    def sell(ctx: Context) -> str:
        """Sell."""
        return f"Sold to {ctx.elicit('Whom?', str)}."

    call(server, "sell", token=token)
    row = worker.run()
    given = {key: {"action": "accept", "content": {"value": "Eve"}} for key in row.questions}
    send(server, "tasks/update", {"taskId": row.pk, "inputResponses": given}, token=token)
    decide("inline", "sell", **decided)
    row = worker.run()
    assert message in (row.status_message or text_of(row.result))
    assert bool(row.error or row.result.get("isError")) == ("Sold" not in message)
