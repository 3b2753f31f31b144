"""A server with every kind of function that reads the rows of the caller's tenant."""

from __future__ import annotations

import asyncio
from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import Count

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import AllowAny, BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.models import AccessToken, Approval, Call, Component, Server, Session, Task
from tests.sites.tenants.models import Item

tenants = MCPServer("tenants", permission=AllowAny)
guarded = MCPServer("guarded", permission=AllowAny)

# What functions of this process note, for the tests that read it with ``notes``.
waiting: list[str] = []
cancelled: list[str] = []
noted: list[str] = []


def items() -> list[str]:
    return [item.name for item in Item.objects.all()]


async def aitems() -> list[str]:
    return [item.name async for item in Item.objects.all()]


@tenants.tool(read_only=True)
def sync_items() -> list[str]:
    """Read in a sync function."""
    return items()


@tenants.tool(read_only=True)
async def async_items() -> list[str]:
    """Read with the ORM's async methods."""
    return await aitems()


@tenants.tool(read_only=True)
async def thread_items() -> list[str]:
    """Read in a thread of `sync_to_async`."""
    return await sync_to_async(items)()


@tenants.tool(read_only=True)
def sync_stream(ctx: Context) -> list[str]:
    """Read row by row, and report each."""
    names = []
    for number in (1, 2, 3):
        ctx.report_progress(number, 3)
        names.append(Item.objects.get(number=number).name)
    return names


@tenants.tool(read_only=True)
async def async_stream(ctx: Context) -> list[str]:
    """Read row by row, report each, and wait in between."""
    names = []
    for number in (1, 2, 3):
        await ctx.areport_progress(number, 3)
        await asyncio.sleep(0)
        names.append((await Item.objects.aget(number=number)).name)
    return names


@tenants.resource("items://pages/{page}", subscribe=True)
async def page(page: int) -> list[str]:
    """Read for a resource template."""
    return await aitems()


for _number in (1, 2, 3):
    tenants.resource(f"notes://{_number}", name=f"note {_number}")(lambda: "A note.")


@tenants.prompt
async def summary(name: str = "") -> str:
    """Read for a prompt."""
    return ", ".join(await aitems())


@tenants.completion(summary, "name")
async def _names(value: str) -> list[str]:
    return await aitems()


@tenants.tool(read_only=True, task="optional")
async def optional_task() -> list[str]:
    """Read in a call that may become a task."""
    return await aitems()


@tenants.tool(read_only=True, task="required")
async def required_task() -> list[str]:
    """Read in a task."""
    return await aitems()


@tenants.tool(read_only=True)
async def note() -> list[str]:
    """Read, and note what was read."""
    names = await aitems()
    noted.extend(names)
    return names


@tenants.tool(read_only=True)
async def wait() -> list[str]:
    """Read, and wait until the client leaves."""
    names = await aitems()
    waiting.extend(names)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.extend(names)
        raise
    return names


@tenants.tool(read_only=True)
def notes() -> dict[str, Any]:
    """Count the rows that functions of this process noted."""
    return {"waiting": len(waiting), "cancelled": len(cancelled), "noted": len(noted)}


@tenants.tool
def touch() -> list[str]:
    """Notify the subscribers of a resource of the tenant."""
    tenants.notify_resource_updated("items://pages/1")
    return items()


@tenants.tool(read_only=True)
def own_rows() -> dict[str, dict[str, int]]:
    """Count the rows of this package by table and tenant, those of all tenants."""
    models = (Session, Task, Call, Approval, AccessToken, Component, Server)
    return {
        model.__name__: dict(
            model._default_manager.order_by().values_list("tenant").annotate(Count("pk"))
        )
        for model in models
    }


@tenants.tool
async def asking(ctx: Context) -> list[str]:
    """Ask before it reads."""
    await ctx.aelicit("Sure?")
    return await aitems()


@tenants.tool(approval="caller")
def approved() -> list[str]:
    """Read once the caller has approved it."""
    return items()


@tenants.tool(read_only=True)
def whoami(ctx: Context) -> str:
    """Return the name of the caller."""
    return str(ctx.user.get_username())


class HasItem(BasePermission):
    """Allows callers whose tenant has a row of this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def has_permission(self, principal: Principal) -> bool:
        return Item.objects.filter(name=self._name).exists()


def _declare(name: str) -> None:
    @guarded.tool(name=name, read_only=True, permission=HasItem(name))
    async def tool() -> list[str]:
        """Read for those who have this row."""
        return await aitems()


for _tenant in ("alpha", "beta"):
    for _number in (1, 2, 3):
        _declare(f"{_tenant}-{_number}")
