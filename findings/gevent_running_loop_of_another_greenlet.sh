#!/bin/sh
# gevent 26.9.0 with threads patched, asyncio of Python 3.11, Django 5.2.19 and asgiref 3.13.0: while
# one greenlet awaits something in asyncio.run(), every other greenlet of the thread seems to have a
# running event loop.
#
# asyncio keeps the running loop for each thread of the system, which greenlets share, although
# threading.local() and threading.get_ident() are their own. So Django refuses sync queries in
# requests that have nothing to do with asyncio, and asyncio.run() cannot run in two greenlets.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    "gevent==26.9.0" "Django==5.2.19" "asgiref==3.13.0"

cat > "$folder/run.py" <<'PYTHON'
from gevent import monkey

monkey.patch_all()

import asyncio
import threading
from importlib.metadata import version

import django
import gevent
from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation

engine = "django.db.backends.sqlite3"
settings.configure(DATABASES={"default": {"ENGINE": engine, "NAME": ":memory:"}})
django.setup()

from django.db import connection

print("gevent", version("gevent"), "Django", version("Django"), "asgiref", version("asgiref"))
here = threading.local()


async def wait():
    here.value = "of the first greenlet"
    await asyncio.sleep(0.5)


def other():
    print("threading.local():", getattr(here, "value", None))
    print("a running loop:", asyncio._get_running_loop() is not None)
    try:
        connection.ensure_connection()
    except SynchronousOnlyOperation as exc:
        print("Django:", exc)
    coroutine = wait()
    try:
        asyncio.run(coroutine)
    except RuntimeError as exc:
        print("asyncio:", exc)
        coroutine.close()


first = gevent.spawn(asyncio.run, wait())
second = gevent.spawn_later(0.1, other)
gevent.joinall([first, second], raise_error=True)
other_after = gevent.spawn(connection.ensure_connection)
other_after.join()
print("afterwards:", other_after.successful())
PYTHON
cat > "$folder/expected" <<'OUTPUT'
gevent 26.9.0 Django 5.2.19 asgiref 3.13.0
threading.local(): None
a running loop: True
Django: You cannot call this from an async context - use a thread or sync_to_async.
asyncio: asyncio.run() cannot be called from a running event loop
afterwards: True
OUTPUT
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
