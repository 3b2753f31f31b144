#!/bin/sh
# django-crum 0.7.9 (Django 5.2.19): a request that is served inside of an impersonate() block, in
# the same thread, ends the impersonation: the rest of the block has no current user.
#
# At the end of each request the middleware clears the current user of the thread with the request,
# and does not restore what was set before the request.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    Django==5.2.19 asgiref==3.13.0 sqlparse==0.6.1 django-crum==0.7.9

cat > "$folder/run.py" <<'PYTHON'
import crum
import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

urlpatterns = [path("", lambda request: HttpResponse("ok"))]
settings.configure(
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    MIDDLEWARE=["crum.CurrentRequestUserMiddleware"],
    USE_TZ=True,
)
django.setup()

from django.contrib.auth.models import User
from django.test import Client

print("django-crum", crum.__version__)
with crum.impersonate(User(username="alice")):
    print("before the request:", crum.get_current_user())
    print("answer:", Client().get("/").content.decode())
    print("after the request:", crum.get_current_user())
PYTHON

cat > "$folder/expected" <<'OUTPUT'
django-crum 0.7.9
before the request: alice
answer: ok
after the request: None
OUTPUT
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
