#!/bin/sh
# django-auditlog 3.4.1 (Django 5.2.19, SQLite): set_actor() does not restore its context variable,
# so after a nested block the rest of the outer block is recorded without an actor.
#
# The variable still has the data of the last block when all blocks have ended. An outer block
# finds the data of the nested block in it, and its signal receiver ignores data that is not its
# own. For the same reason the outer block disconnects the receiver of the nested block a second
# time and leaves its own connected.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    Django==5.2.19 asgiref==3.13.0 sqlparse==0.6.1 \
    django-auditlog==3.4.1 python-dateutil==2.9.0.post0 six==1.17.0

cat > "$folder/run.py" <<'PYTHON'
from importlib.metadata import version

import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "auditlog"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    USE_TZ=True,
)
django.setup()

from auditlog.context import auditlog_value, set_actor
from auditlog.models import LogEntry
from auditlog.registry import auditlog
from django.contrib.auth.models import Group, User
from django.db.models.signals import pre_save

call_command("migrate", verbosity=0)
alice = User.objects.create(username="alice")
bob = User.objects.create(username="bob")
auditlog.register(Group)


def record(name):
    Group.objects.create(name=name)
    print(f"{name}: {LogEntry.objects.get(object_repr=name).actor}")


print("django-auditlog", version("django-auditlog"))
receivers = len(pre_save.receivers)
with set_actor(alice):
    record("a single block")
print("actor in the variable after it:", auditlog_value.get()["actor"])
print("receivers left after it:", len(pre_save.receivers) - receivers)
with set_actor(alice):
    record("outer block, before")
    with set_actor(bob):
        record("nested block")
    record("outer block, after")
print("actor in the variable after both:", auditlog_value.get()["actor"])
print("receivers left after both:", len(pre_save.receivers) - receivers)
PYTHON

cat > "$folder/expected" <<'OUTPUT'
django-auditlog 3.4.1
a single block: alice
actor in the variable after it: alice
receivers left after it: 0
outer block, before: alice
nested block: bob
outer block, after: None
actor in the variable after both: bob
receivers left after both: 1
OUTPUT
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
