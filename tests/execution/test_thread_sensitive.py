"""Async functions in threads that have no event loop: under WSGI, in tasks and in commands."""

import asyncio
import contextlib
import contextvars
import gc
import os
import selectors
import signal
import socket
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group

from mcp_django import ToolError
from mcp_django.execution import thread_sensitive
from mcp_django.execution.thread_sensitive import (
    close_idle_loops,
    run_coroutine,
    run_in_this_thread,
)
from mcp_django.execution.threads import get_pool
from mcp_django.test import MCPClient
from tests.kit.servers import open_to_all

variable = contextvars.ContextVar("variable", default="unset")
server = open_to_all()
pool = ThreadPoolExecutor(1)
loops = []
left = []


def note_loop():
    loops.append(asyncio.get_running_loop())


@server.tool
async def at_once() -> str:
    note_loop()
    assert asyncio.current_task() is not None
    return "done"


@server.tool
async def use_timeout() -> str:
    note_loop()
    async with asyncio.timeout(10):
        await asyncio.sleep(0)
    return "done"


@server.tool
async def begin_tasks() -> str:
    note_loop()

    async def half(text: str) -> str:
        await asyncio.sleep(0)
        return text

    async with asyncio.TaskGroup() as group:
        halves = [group.create_task(half(text)) for text in ("do", "ne")]
    return "".join(task.result() for task in halves)


@server.tool
async def wait() -> str:
    note_loop()
    await asyncio.sleep(0.001)
    return "done"


@server.tool
async def use_orm() -> str:
    note_loop()
    await Group.objects.acount()
    here = await sync_to_async(threading.get_ident)()
    return "done" if here == threading.get_ident() else "elsewhere"


@server.tool
async def use_loop_in_sync_code() -> str:
    note_loop()

    async def inner() -> str:
        await asyncio.sleep(0)
        return "done"

    return await sync_to_async(async_to_sync(inner))()


@server.tool
async def iterate() -> str:
    note_loop()

    async def items():
        for letter in "done":
            yield letter

    return "".join([letter async for letter in items()])


@server.tool
async def fail() -> str:
    note_loop()
    raise ToolError("not today")


@server.tool
async def leave_task() -> str:
    note_loop()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            left.append("task")

    task = asyncio.create_task(never())
    await asyncio.sleep(0)
    return "done" if not task.done() else "over"


@server.tool
async def leave_thread() -> str:
    note_loop()
    await asyncio.to_thread(str)
    return "done"


@server.tool
async def leave_timer() -> str:
    note_loop()
    asyncio.get_running_loop().call_later(3600, left.append, "timer")
    return "done"


@server.tool
async def leave_callback() -> str:
    note_loop()
    loop = asyncio.get_running_loop()

    def again() -> None:
        loop.call_soon(again)

    again()
    return "done"


@server.tool
async def leave_generator() -> str:
    note_loop()

    async def items():
        try:
            yield "done"
        finally:
            await asyncio.sleep(0)
            left.append("generator")

    left.append(items())
    return await anext(left[-1])


@server.tool
async def leave_reader() -> str:
    note_loop()
    ours, _ = pair = socket.socketpair()
    left.extend(pair)
    asyncio.get_running_loop().add_reader(ours, left.append, "read")
    return "done"


@server.tool
async def leave_signal_handler() -> str:
    note_loop()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, str)
    return "done"


@server.tool
async def leave_exception_handler() -> str:
    note_loop()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    return "done"


@server.tool
async def use_pool_of_site() -> str:
    note_loop()
    return await sync_to_async(lambda: "done", thread_sensitive=False, executor=pool)()


@pytest.fixture(autouse=True)
def no_loops():
    close_idle_loops()
    loops.clear()
    left.clear()
    yield
    close_idle_loops()
    for leftover in left:
        if isinstance(leftover, socket.socket):
            leftover.close()


def ask(name: str) -> str:
    return MCPClient(server=server).call_tool(name, check=False).text


@pytest.mark.parametrize(
    "name",
    [
        *("at_once", "use_timeout", "begin_tasks", "wait", "iterate"),
        pytest.param("use_orm", marks=pytest.mark.django_db),
        "use_loop_in_sync_code",
    ],
)
def test_calls_use_one_loop(name):
    assert [ask(name) for _ in range(3)] == ["done"] * 3
    assert len(set(loops)) == 1
    assert not loops[0].is_closed()


def test_an_exception_leaves_the_loop_as_new():
    assert ask("fail") == "not today"
    assert ask("at_once") == "done"
    assert len(set(loops)) == 1


@pytest.mark.parametrize(
    ("name", "ended"),
    [
        ("leave_task", ["task"]),
        ("leave_thread", []),
        ("leave_timer", []),
        ("leave_callback", []),
        ("leave_generator", ["generator"]),
        ("leave_reader", []),
        ("leave_signal_handler", []),
        ("leave_exception_handler", []),
    ],
)
def test_what_a_call_leaves_ends_with_its_loop(name, ended):
    assert ask(name) == "done"
    [loop] = loops
    assert loop.is_closed()
    # The threads of the loop's own executor.
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("asyncio")]
    assert [leftover for leftover in left if isinstance(leftover, str)] == ended
    assert ask("at_once") == "done"
    assert loops[1] is not loop


def test_threads_share_the_idle_loops():
    for _ in range(3):
        thread = threading.Thread(target=ask, args=("at_once",))
        thread.start()
        thread.join()
    assert len(set(loops)) == 1


def test_calls_at_once_have_loops_of_their_own_and_few_are_kept(monkeypatch):
    monkeypatch.setattr(thread_sensitive, "MAX_IDLE_LOOPS", 2)
    together = threading.Barrier(4, timeout=10)

    async def meet() -> str:
        note_loop()
        together.wait()
        return "done"

    own = open_to_all()
    own.tool(meet)
    client = MCPClient(server=own)
    threads = [threading.Thread(target=client.call_tool, args=("meet",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(loops)) == 4
    assert sum(not loop.is_closed() for loop in loops) == 2


def test_a_context_is_the_call_s_own():
    context = contextvars.copy_context()

    async def change() -> str:
        variable.set("changed")
        return variable.get()

    assert run_in_this_thread(change, context=context, ends_with_request=False) == "changed"
    assert variable.get() == "unset"
    assert context[variable] == "changed"


def test_a_thread_that_has_a_running_loop_is_told_so():
    async def call() -> None:
        run_coroutine(use_timeout)

    with pytest.raises(RuntimeError, match="await the function"):
        asyncio.run(call())


def test_code_that_outlives_a_call_finds_no_loop_to_wait_for():
    """``asgiref`` keeps the loop of the call in the threads of the site's own pool."""
    assert ask("use_pool_of_site") == "done"
    assert loops[0].is_closed()
    assert pool.submit(async_to_sync(use_timeout)).result(timeout=10) == "done"
    assert ask("at_once") == "done"
    with pytest.raises(RuntimeError, match="call is over"):
        loops[-1].call_soon_threadsafe(str)


def test_what_used_an_idle_loop_does_not_run_in_the_next_call():
    assert ask("at_once") == "done"
    loops[0].call_soon(left.append, "stray")
    assert ask("at_once") == "done"
    assert loops[0].is_closed()
    assert loops[1] is not loops[0]


@pytest.mark.parametrize("name", ["wait", "use_timeout", "begin_tasks"])
def test_a_loop_does_not_keep_the_context_of_a_call(name):
    class Scope:
        pass

    def call() -> weakref.ref[Scope]:
        scope = Scope()
        variable.set(scope)
        assert ask(name) == "done"
        return weakref.ref(scope)

    kept = contextvars.copy_context().run(call)
    gc.collect()
    assert kept() is None
    assert not loops[0].is_closed()


def test_a_loop_without_references_is_freed_though_threads_gave_it_results():
    async def hop() -> None:
        note_loop()
        await get_pool("short").run(str)

    freed = threading.Event()
    run_coroutine(hop)
    kept = weakref.ref(loops.pop(), lambda _: freed.set())
    close_idle_loops()
    gc.collect()
    # The thread that returned the result may not have finished with it.
    assert freed.wait(10)
    assert kept() is None


@pytest.mark.parametrize("where", ["coroutine", "sync code"])
def test_an_interrupted_call_closes_its_loop(where):
    def interrupt() -> None:
        raise KeyboardInterrupt

    async def call() -> None:
        note_loop()
        asyncio.get_running_loop().call_soon(left.append, "callback")
        if where == "coroutine":
            interrupt()
        await sync_to_async(interrupt)()

    with pytest.raises(KeyboardInterrupt):
        run_coroutine(call)
    assert loops[0].is_closed() or where == "sync code"
    assert ask("at_once") == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("on_loop", [False, True])
@pytest.mark.outside
def test_parent_and_child_have_loops_of_their_own(on_loop):
    together = threading.Barrier(2, timeout=10)

    async def meet() -> str:
        note_loop()
        together.wait()
        return "done"

    threads = [threading.Thread(target=run_coroutine, args=(meet,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def fork() -> int:
        child = os.fork()
        if not child:
            asyncio._set_running_loop(None)
            status = 1
            with contextlib.suppress(BaseException):
                status = 0 if ask("wait") == "done" and len(set(loops)) == 3 else 2
            os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    async def fork_on_loop() -> int:
        return fork()

    assert (asyncio.run(fork_on_loop()) if on_loop else fork()) == 0
    assert all(loop.is_closed() for loop in loops)
    assert ask("wait") == "done"


@pytest.fixture
def looks(monkeypatch):
    close_idle_loops()
    looks = []
    select = selectors.DefaultSelector.select

    def noting(self, timeout=None):
        looks.append(timeout)
        return select(self, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", noting)
    yield looks
    close_idle_loops()


def test_a_function_that_does_not_wait_never_releases_the_gil_to_look(looks):
    async def take_steps() -> str:
        async with asyncio.timeout(10):
            for _ in range(3):
                await asyncio.sleep(0)
        return "done"

    assert run_coroutine(take_steps) == "done"
    assert looks == []


def test_a_function_with_a_file_is_told_of_it_at_once(looks):
    async def receive() -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.sendall(b"x")
            return await asyncio.get_running_loop().sock_recv(ours, 1)

    async def wait_for_file() -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ready = asyncio.Event()
            loop = asyncio.get_running_loop()
            loop.add_reader(ours, ready.set)
            theirs.sendall(b"x")
            # There is always a next step, so the loop never waits when it polls.
            steps = 0
            while not ready.is_set():
                await asyncio.sleep(0)
                steps += 1
                assert steps < 5
            loop.remove_reader(ours)
            return ours.recv(1)

    assert run_coroutine(receive) == b"x"
    assert run_coroutine(wait_for_file) == b"x"


def test_a_busy_function_gets_signals_and_what_threads_send(looks):
    async def spin() -> list[str]:
        loop, events = asyncio.get_running_loop(), []
        loop.add_signal_handler(signal.SIGUSR1, events.append, "signal")
        pool.submit(loop.call_soon_threadsafe, events.append, "thread").result()
        os.kill(os.getpid(), signal.SIGUSR1)
        steps = 0
        while len(events) < 2:
            await asyncio.sleep(0)
            steps += 1
            assert steps < 10 * thread_sensitive.MAX_LEFT_OUT
        loop.remove_signal_handler(signal.SIGUSR1)
        return sorted(events)

    assert run_coroutine(spin) == ["signal", "thread"]
    assert looks
