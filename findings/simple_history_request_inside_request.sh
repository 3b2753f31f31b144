#!/bin/sh
# django-simple-history 3.13.0 (Django 5.2.19, SQLite): a request that is served inside of another
# one, in the same thread, deletes the outer request from HistoricalRecords.context, so later
# changes of the outer request are recorded without a user.
#
# The middleware deletes the attribute at the end of each request instead of restoring the request
# that it found. The site of this script has a view that serves another request with its handler.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    Django==5.2.19 asgiref==3.13.0 sqlparse==0.6.1 django-simple-history==3.13.0

mkdir "$folder/shop"
touch "$folder/shop/__init__.py"
cat > "$folder/shop/models.py" <<'PYTHON'
from django.db import models
from simple_history.models import HistoricalRecords


class Item(models.Model):
    name = models.CharField(max_length=40)
    history = HistoricalRecords()
PYTHON

cat > "$folder/run.py" <<'PYTHON'
from importlib.metadata import version

import django
from django.conf import settings
from django.core.management import call_command
from django.http import HttpResponse
from django.urls import path


def sign_in(get_response):
    def middleware(request):
        request.user = User.objects.get(username="alice")
        return get_response(request)

    return middleware


def item(request):
    Item.objects.create(name="inner request")
    return HttpResponse("ok")


def batch(request):
    Item.objects.create(name="outer request, before")
    handler = WSGIHandler()
    inner = RequestFactory().get("/item")
    handler.get_response(inner)
    Item.objects.create(name="outer request, after")
    return HttpResponse("ok")


urlpatterns = [path("item", item), path("batch", batch)]
settings.configure(
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "simple_history", "shop"],
    MIDDLEWARE=[f"{__name__}.sign_in", "simple_history.middleware.HistoryRequestMiddleware"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    USE_TZ=True,
)
django.setup()

from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.test import Client, RequestFactory
from shop.models import Item

call_command("migrate", run_syncdb=True, verbosity=0)
User.objects.create(username="alice")
print("django-simple-history", version("django-simple-history"))
Client().get("/batch")
for row in Item.history.order_by("history_id"):
    print(f"{row.name}: {row.history_user}")
PYTHON

cat > "$folder/expected" <<'OUTPUT'
django-simple-history 3.13.0
outer request, before: alice
inner request: alice
outer request, after: None
OUTPUT
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
