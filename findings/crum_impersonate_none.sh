#!/bin/sh
# django-crum 0.7.9 (Django 5.2.19): impersonate(None) assigns None to `user` of the current
# request, where Django has an AnonymousUser for a request without a user.
#
# Code that reads request.user.is_authenticated inside of the block fails with an AttributeError.
# If the request had no attribute `user`, it has one after the block, and its value is False.
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

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"], USE_TZ=True
)
django.setup()

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpResponse
from django.test import RequestFactory


def view(request):
    print("  before:", repr(getattr(request, "user", "no attribute")))
    with crum.impersonate(None):
        print("  inside:", repr(request.user))
        try:
            request.user.is_authenticated
        except AttributeError as error:
            print("  is_authenticated:", error)
    print("  after:", repr(getattr(request, "user", "no attribute")))
    return HttpResponse()


print("django-crum", crum.__version__)
for user in (User(username="alice"), AnonymousUser(), None):
    request = RequestFactory().get("/")
    if user:
        request.user = user
    print("a request of", user or "a site without AuthenticationMiddleware")
    crum.CurrentRequestUserMiddleware(view)(request)
PYTHON

cat > "$folder/expected" <<'OUTPUT'
django-crum 0.7.9
a request of alice
  before: <User: alice>
  inside: None
  is_authenticated: 'NoneType' object has no attribute 'is_authenticated'
  after: <User: alice>
a request of AnonymousUser
  before: <django.contrib.auth.models.AnonymousUser object>
  inside: None
  is_authenticated: 'NoneType' object has no attribute 'is_authenticated'
  after: <django.contrib.auth.models.AnonymousUser object>
a request of a site without AuthenticationMiddleware
  before: 'no attribute'
  inside: None
  is_authenticated: 'NoneType' object has no attribute 'is_authenticated'
  after: False
OUTPUT
"$folder/venv/bin/python" "$folder/run.py" |
    sed 's/ object at 0x[0-9a-f]*>/ object>/' | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
