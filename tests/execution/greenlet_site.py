"""A site whose functions let other greenlets run, for gunicorn with gevent."""

import asyncio
import time

from django.core.wsgi import get_wsgi_application

wsgi = get_wsgi_application()

from asgiref.sync import sync_to_async  # noqa: E402
from django.contrib.auth.models import Group  # noqa: E402
from django.urls import path  # noqa: E402

from tests.kit.servers import open_to_all  # noqa: E402

PAUSE = 0.02
server = open_to_all()


@server.tool(read_only=True)
def sync() -> str:
    Group.objects.count()
    time.sleep(PAUSE)
    Group.objects.count()
    return "done"


@server.tool(read_only=True)
async def wait() -> str:
    await asyncio.sleep(PAUSE)
    return "done"


@server.tool(read_only=True)
async def query() -> str:
    await Group.objects.acount()
    async with asyncio.timeout(10):
        await asyncio.sleep(PAUSE)
    await sync_to_async(time.sleep)(PAUSE)
    await Group.objects.acount()
    return "done"


@server.tool(read_only=True)
async def generate() -> str:
    async def steps():
        for text in ("do", "ne"):
            await asyncio.sleep(PAUSE)
            yield text

    return "".join([text async for text in steps()])


@server.tool(read_only=True)
async def gather() -> str:
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(asyncio.sleep(PAUSE))
    return await asyncio.to_thread(str, "done")


urlpatterns = [path("mcp", server.urls)]
