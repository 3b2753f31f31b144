#!/bin/sh
# django-reversion 6.4.0 (Django 5.2.19, SQLite): what a nested create_revision() block adds is
# lost if the block is entered in a copy of the context, as contextvars.copy_context() makes it.
#
# Without the nested block, and with the nested block in the same context, the outer block stores
# the object. With both, the object itself is saved, but the revision of the outer block does not
# have it; without other objects there is no revision at all. There is no error.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    Django==5.2.19 asgiref==3.13.0 sqlparse==0.6.1 django-reversion==6.4.0

cat > "$folder/run.py" <<'PYTHON'
from contextvars import copy_context

import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "reversion"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    USE_TZ=True,
)
django.setup()

import reversion
from django.contrib.auth.models import Group
from reversion.models import Revision, Version

call_command("migrate", verbosity=0)
reversion.register(Group)


def add():
    Group.objects.create(name="editors")


def add_in_nested_block():
    with reversion.create_revision():
        Group.objects.create(name="editors")


def add_another():
    Group.objects.create(name="authors")


def call(function):
    function()


def call_in_copied_context(function):
    copy_context().run(function)


print("django-reversion", ".".join(map(str, reversion.VERSION)))
for caller in (call, call_in_copied_context):
    for steps in ([add], [add_in_nested_block], [add_another, add_in_nested_block]):
        with reversion.create_revision():
            for step in steps:
                caller(step)
        print(caller.__name__, [step.__name__ for step in steps])
        print("  rows:", sorted(Group.objects.values_list("name", flat=True)))
        print("  revisions:", Revision.objects.count())
        print("  versions:", sorted(version.object_repr for version in Version.objects.all()))
        Revision.objects.all().delete()
        Group.objects.all().delete()
PYTHON

cat > "$folder/expected" <<'OUTPUT'
django-reversion 6.4.0
call ['add']
  rows: ['editors']
  revisions: 1
  versions: ['editors']
call ['add_in_nested_block']
  rows: ['editors']
  revisions: 1
  versions: ['editors']
call ['add_another', 'add_in_nested_block']
  rows: ['authors', 'editors']
  revisions: 1
  versions: ['authors', 'editors']
call_in_copied_context ['add']
  rows: ['editors']
  revisions: 1
  versions: ['editors']
call_in_copied_context ['add_in_nested_block']
  rows: ['editors']
  revisions: 0
  versions: []
call_in_copied_context ['add_another', 'add_in_nested_block']
  rows: ['authors', 'editors']
  revisions: 1
  versions: ['authors']
OUTPUT
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
