#!/bin/sh
# django-reversion 6.4.0 (Django 5.2.19, SQLite): a change that an inner transaction.atomic() block
# rolled back stays in the open revision, which stores a version with values that no row has had.
#
# A row that was created and rolled back is left out, since only versions of existing rows are
# stored. Of a row that existed before, the version has the values that were rolled back.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    Django==5.2.19 asgiref==3.13.0 sqlparse==0.6.1 django-reversion==6.4.0

cat > "$folder/run.py" <<'PYTHON'
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
from django.db import transaction
from reversion.models import Revision, Version

call_command("migrate", verbosity=0)
reversion.register(Group)


class Refused(Exception):
    pass


def save_and_roll_back(group):
    try:
        with transaction.atomic():
            group.save()
            raise Refused
    except Refused:
        pass


def report(title):
    rows = list(Group.objects.values_list("name", flat=True))
    versions = [version.field_dict["name"] for version in Version.objects.all()]
    print(f"{title}: rows {rows}, versions {versions}")
    Revision.objects.all().delete()


print("django-reversion", ".".join(map(str, reversion.VERSION)))
with reversion.create_revision():
    save_and_roll_back(Group(name="writers"))
report("create rolled back")

group = Group.objects.create(name="editors")
with reversion.create_revision():
    group.name = "authors"
    save_and_roll_back(group)
report("update rolled back")
PYTHON

cat > "$folder/expected" <<'OUTPUT'
django-reversion 6.4.0
create rolled back: rows [], versions []
update rolled back: rows ['editors'], versions ['authors']
OUTPUT
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
