"""A site with tools that require an approval, and helpers that decide on their calls."""

from __future__ import annotations

from typing import Annotated, Any

from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.test import Client, TestCase
from django.urls import path
from pydantic import Field, SecretStr

from mcp_django import Context, MCPServer, ModelTools
from mcp_django.models import Approval, Component
from mcp_django.overrides.state import publish_change
from tests.kit.servers import person

gated = MCPServer("gated", title="The desk")
URLS = "tests.execution.approval_site"


@gated.tool(approval="caller", title="Found a group")
def found_group(name: str, note: str = "", pin: str = "") -> str:
    """Make a group, once its founder has said yes."""
    Group.objects.create(name=name)
    return f"Founded {name}."


@gated.tool(approval="caller")
async def found_group_later(name: str) -> str:
    """The same, asynchronously."""
    await Group.objects.acreate(name=name)
    return f"Founded {name}."


@gated.tool(approval="staff", sensitive=["reason"])
def close_desk(
    desk: Annotated[int, Field(gt=0)],
    reason: str = "",
    password: str = "",
    codes: list[SecretStr] = [],  # noqa: B006
) -> dict[str, int]:
    """Close a desk, once somebody else has said yes."""
    Group.objects.create(name=f"closed {desk}")
    return {"desk": desk}


@gated.tool(approval="caller")
def ask_first(ctx: Context, name: str) -> str:
    """Ask something of its own, too."""
    color = ctx.elicit("Which color?", str)
    Group.objects.create(name=f"{color} {name}")
    return f"Founded {color} {name}."


@gated.tool(approval="caller")
def fail(name: str) -> str:
    """Fail."""
    raise Group.DoesNotExist(f"No {name}.")


@gated.register(Group)
class GroupMCP(ModelTools[Group]):
    """What the admin can make wait."""

    fields = ("id", "name")
    tools = ("create", "update", "delete")


urlpatterns = [path("gated/mcp", gated.urls), path("admin/", admin.site.urls)]


def decider(username: str = "boss", **details: Any) -> Any:
    """Create a user who may approve calls of others."""
    user = person(username, **details)
    user.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    return user


def signed_in(user: Any) -> Client:
    """Return a browser in which this user is signed in."""
    client = Client(enforce_csrf_checks=False)
    client.force_login(user)
    return client


def page_of(row: Approval) -> str:
    """Return the path of the page on which a call is decided."""
    return f"/gated/mcp/approvals/{row.code}"


def decide(user: Any, row: Approval, verdict: str = "grant", **form: str) -> Any:
    """Submit the page of a call as a user."""
    return signed_in(user).post(page_of(row), {"decision": verdict, **form})


def waiting() -> Approval:
    """Return the only approval, whatever its state."""
    return Approval.objects.get()


def narrow(tool: str, approval: str) -> None:
    """Make the calls of a tool require an approval, as the site owner does in the admin."""
    Component.objects.create(
        server="gated", kind=Component.Kind.TOOL, key=tool, name=tool, approval=approval
    )
    with TestCase.captureOnCommitCallbacks(execute=True):
        publish_change([("gated", "tools")])
