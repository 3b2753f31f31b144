#!/bin/sh
# django-pghistory 3.9.2 (Django 5.2.19, no database server): HistoryMiddleware assigns its own
# class to the request, so a request of a subclass of WSGIRequest loses the methods of its class.
#
# The view gets a request that is no longer an instance of the class that the handler names in
# request_class. Without the middleware it is.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    Django==5.2.19 asgiref==3.13.0 sqlparse==0.6.1 django-pghistory==3.9.2 \
    django-pgtrigger==4.17.0 psycopg==3.3.9 psycopg-binary==3.3.9 typing_extensions==4.15.0

cat > "$folder/run.py" <<'PYTHON'
import sys
from importlib.metadata import version
from wsgiref.util import setup_testing_defaults

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.http import HttpResponse
from django.urls import path


def view(request):
    kind = f"{type(request).__module__}.{type(request).__qualname__}"
    found = "is there" if hasattr(request, "tenant") else "is missing"
    return HttpResponse(f"{kind}, tenant() {found}")


urlpatterns = [path("", view)]
settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["django.contrib.contenttypes", "pgtrigger", "pghistory"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    MIDDLEWARE=sys.argv[1:],
)
django.setup()


class TenantRequest(WSGIRequest):
    def tenant(self):
        return self.get_host().partition(".")[0]


class TenantHandler(WSGIHandler):
    request_class = TenantRequest


environ = {}
setup_testing_defaults(environ)
response = TenantHandler()(environ, lambda status, headers: None)
print("django-pghistory", version("django-pghistory"), settings.MIDDLEWARE)
print(b"".join(response).decode())
PYTHON

cat > "$folder/expected" <<'OUTPUT'
django-pghistory 3.9.2 []
__main__.TenantRequest, tenant() is there
django-pghistory 3.9.2 ['pghistory.middleware.HistoryMiddleware']
pghistory.middleware.WSGIRequest, tenant() is missing
OUTPUT
{
    "$folder/venv/bin/python" "$folder/run.py"
    "$folder/venv/bin/python" "$folder/run.py" pghistory.middleware.HistoryMiddleware
} | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
