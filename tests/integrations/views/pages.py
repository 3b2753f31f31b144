"""Views of every kind, as a site has them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from uuid import UUID

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required, permission_required
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import (
    FileResponse,
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.utils import timezone, translation
from django.utils.safestring import mark_safe
from django.views.decorators.cache import cache_page
from django.views.decorators.http import etag, require_POST
from django.views.decorators.vary import vary_on_cookie
from django.views.generic import TemplateView, View

from mcp_django import MCPServer
from mcp_django.test import MCPClient
from tests.integrations.views.forms import PriceForm

PIXEL = b"\x89PNG\r\n\x1a\n and the rest"


class Leak(Exception):
    """A bug whose text contains confidential details."""


def price_list(request: HttpRequest, season: str) -> JsonResponse:
    """The prices of a season."""
    return JsonResponse({"season": season, "prices": [1, 2]})


def article(request: HttpRequest, slug: str) -> HttpResponse:
    """An article."""
    return HttpResponse(
        f"<html><head><title>{slug}</title></head><body><h1>About {slug}</h1>"
        "<script>alert(1)</script><ul><li>one<li>two</ul></body></html>"
    )


def who(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.user.get_username() or "nobody", content_type="text/plain")


secret = login_required(who)
allowed = permission_required("auth.view_group", raise_exception=True)(who)
sent_away = permission_required("auth.view_group")(who)


async def who_async(request: HttpRequest) -> HttpResponse:
    user = await request.auser()
    return HttpResponse(f"async {user.get_username()}", content_type="text/plain")


class Numbers(View):
    """One number of a year."""

    def get(self, request: HttpRequest, **given: object) -> JsonResponse:
        return JsonResponse(
            {name: [type(value).__name__, str(value)] for name, value in given.items()}
        )


class Bare(TemplateView):
    template_name = "bare.html"


def thing(request: HttpRequest, key: UUID) -> HttpResponse:
    return HttpResponse(f"{key!r}", content_type="text/plain")


def search(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"query": {name: request.GET.getlist(name) for name in request.GET}})


def echo(request: HttpRequest) -> JsonResponse:
    wanted = ("REMOTE_ADDR", "HTTP_ACCEPT_LANGUAGE", "HTTP_AUTHORIZATION", "HTTP_USER_AGENT")
    return JsonResponse(
        {
            "url": request.build_absolute_uri(),
            "path": request.path,
            "path_info": request.path_info,
            "is_secure": request.is_secure(),
            "cookies": request.COOKIES,
            "method": request.method,
            "post": dict(request.POST.lists()),
            "language": translation.get_language(),
            "zone": timezone.get_current_timezone_name(),
            "stamp": getattr(request, "stamp", None),
            **{name: request.META.get(name) for name in wanted},
        }
    )


def image(request: HttpRequest) -> HttpResponse:
    return HttpResponse(PIXEL, content_type="image/png")


def report(request: HttpRequest) -> FileResponse:
    return FileResponse(
        BytesIO(b"%PDF-1.7"),
        as_attachment=True,
        filename="report.pdf",
        content_type="application/pdf",
    )


def rows(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse((f"{n},{n * n}\n" for n in range(3)), content_type="text/csv")


def endless(request: HttpRequest) -> StreamingHttpResponse:
    def lines() -> Iterator[str]:
        while True:
            yield "and on\n"

    return StreamingHttpResponse(lines(), content_type="text/plain")


async def endless_async(request: HttpRequest) -> StreamingHttpResponse:
    async def lines() -> AsyncIterator[str]:
        while True:
            yield "and on\n"

    return StreamingHttpResponse(lines(), content_type="text/plain")


def boom(request: HttpRequest) -> HttpResponse:
    password = "hunter2"  # noqa: F841 - what a debug page would show
    raise Leak("the password is hunter2")


def missing(request: HttpRequest) -> HttpResponse:
    raise Http404("No such page.")


def gone(request: HttpRequest) -> HttpResponse:
    return HttpResponse("<h1>private path /srv/x</h1>", status=404)


def forbidden(request: HttpRequest) -> HttpResponse:
    raise PermissionDenied("Members only.")


def shady(request: HttpRequest) -> HttpResponse:
    raise SuspiciousOperation("tampered with: hunter2")


def conflict(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"detail": "taken since noon"}, status=409)


def cookie(request: HttpRequest) -> HttpResponse:
    request.session["basket"] = [1]
    response = HttpResponse("ok", content_type="text/plain")
    response.set_cookie("tracking", "xyz")
    return response


def sign_in(request: HttpRequest) -> HttpResponse:
    user = User.objects.get(username="ada")
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return HttpResponse(f"signed in {request.session.session_key}", content_type="text/plain")


def elsewhere(request: HttpRequest) -> HttpResponseRedirect:
    return HttpResponseRedirect("https://other.example/path?x=1")


def said(request: HttpRequest) -> HttpResponseRedirect:
    messages.success(request, "Saved.")
    messages.warning(request, mark_safe("<b>Twice</b>"))
    return HttpResponseRedirect("/who/")


nested_server = MCPServer("nested")


def nested(request: HttpRequest) -> HttpResponse:
    result = MCPClient(server=nested_server, user=request.user).call_tool("nested", check=False)
    return HttpResponse(f"inner: {result.text}", content_type="text/plain")


def personal(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"for {request.user.get_username()}", content_type="text/plain")


cached = cache_page(60)(personal)
cached_by_cookie = cache_page(60)(vary_on_cookie(personal))


@etag(lambda request: "one")
def tagged(request: HttpRequest) -> HttpResponse:
    return HttpResponse("tagged", content_type="text/plain")


def writes_and_fails(request: HttpRequest) -> HttpResponse:
    Group.objects.create(name="left behind")
    raise Leak


@require_POST
def add_price(request: HttpRequest) -> HttpResponse:
    """Add a price."""
    form = PriceForm(request.POST)
    if not form.is_valid():
        return JsonResponse({"errors": form.errors}, status=400)
    return JsonResponse({"added": {name: str(value) for name, value in form.cleaned_data.items()}})


def catch_all(request: HttpRequest, page: str) -> HttpResponse:
    return HttpResponse(f"page {page}", content_type="text/plain")


def rows_as_list(request: HttpRequest) -> JsonResponse:
    return JsonResponse([{"n": n} for n in range(3)], safe=False)
