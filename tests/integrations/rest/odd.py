"""Views with something special about them: caches, decorators, transactions, middleware."""

from __future__ import annotations

from io import BytesIO

from django.contrib.auth.decorators import login_required
from django.db import connections, transaction
from django.http import FileResponse, HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_page
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.vary import vary_on_headers
from rest_framework import generics, viewsets
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import JSONParser
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.versioning import NamespaceVersioning
from rest_framework.views import APIView

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.test import MCPClient
from tests.integrations.rest.serializers import (
    DeepSerializer,
    EverythingSerializer,
    TagSerializer,
    UploadSerializer,
)
from tests.sites.shop.models import OrderLine, Product, Tag


class Impostor(BaseAuthentication):
    """An authenticator that must not be called, since callers keep their identity."""

    def authenticate(self, request):
        raise AssertionError("nobody asked")


class StubbornView(APIView):
    """Chooses its authenticators by itself."""

    def get_authenticators(self):
        return [Impostor()]

    def get(self, request):
        return Response(
            {"user": request.user.username, "scope": getattr(request.auth, "scope", None)}
        )


@method_decorator(cache_page(60), name="dispatch")
@method_decorator(vary_on_headers("Authorization"), name="dispatch")
class CachedView(APIView):
    """Says who asked first."""

    def get(self, request):
        return Response({"user": request.user.username})


class WhoView(APIView):
    def get(self, request):
        tenant = getattr(request, "tenant", None)
        return Response({"user": request.user.username, "tenant": tenant})


class MemoryView(APIView):
    def get(self, request):
        request.session["who"] = "somebody"
        request.session.save()
        return Response({"kept": True})


class TagMaker(APIView):
    """Writes before it finds out."""

    def post(self, request, word: str):
        Tag.objects.create(word=word)
        if word == "bad":
            raise ValidationError({"word": ["is bad"]})
        if word == "bug":
            raise ZeroDivisionError
        if word == "told":
            return Response({"word": ["is told"]}, status=400)
        return Response({"in_transaction": connections["default"].in_atomic_block})


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class FreeTagMaker(TagMaker):
    pass


@api_view(["GET"])
def plain(request):
    return Response({"user": request.user.username})


guarded = login_required(plain)


@csrf_protect
@api_view(["POST"])
def protected(request):
    return Response({"posted": True})


nested_server = MCPServer("nested-rest", permission=AllowAny)


class NestedView(APIView):
    """Calls itself through us."""

    def get(self, request):
        client = MCPClient(server=nested_server, user=request.user)
        return Response({"inner": client.call_tool("nested", check=False).text})


def debugging_middleware(get_response):
    """Show details of an exception to every caller."""

    class Middleware:
        def __call__(self, request):
            return get_response(request)

        def process_exception(self, request, exception):
            return HttpResponse(f"<pre>{exception!r} SETTINGS</pre>", status=500)

    return Middleware()


def remembering_middleware(get_response):
    """Write to the session after the view has answered."""

    def middleware(request):
        response = get_response(request)
        request.session["last"] = "seen"
        return response

    return middleware


class FileView(APIView):
    def get(self, request):
        return FileResponse(BytesIO(b"one two"), content_type="text/plain")


class SpaceViewSet(viewsets.ModelViewSet):
    """Has the same words in several versions."""

    queryset = Tag.objects.order_by("pk")
    serializer_class = TagSerializer
    versioning_class = NamespaceVersioning

    def list(self, request):
        url = self.reverse_action("detail", args=[self.get_queryset().first().pk])
        return Response({"version": request.version, "url": url})


class UploadOnly(generics.CreateAPIView):
    serializer_class = UploadSerializer


class RequestDependent(generics.CreateAPIView):
    """Takes what depends on who asks."""

    def get_serializer_class(self):
        return TagSerializer if self.request.user.is_staff else UploadSerializer


class AddressView(APIView):
    def get(self, request, word: str):
        absolute = request.build_absolute_uri()
        return Response({"path": request.path, "word": word, "absolute": absolute})


class ChoosyView(APIView):
    def get_parsers(self):
        return [JSONParser()] if self.request.method == "POST" else []

    def initialize_request(self, request, *args, **kwargs):
        self.request = request
        return super().initialize_request(request, *args, **kwargs)

    def post(self, request):
        return Response(request.data)


class EverythingView(generics.ListAPIView):
    queryset = Product.objects.order_by("pk")
    serializer_class = EverythingSerializer


class DeepView(generics.ListAPIView):
    queryset = OrderLine.objects.order_by("pk")
    serializer_class = DeepSerializer


class BulkView(generics.CreateAPIView):
    def get_serializer(self, *args, **kwargs):
        return TagSerializer(*args, many=True, **kwargs)


def tenant_middleware(get_response):
    """Set the tenant of the request, which the view relies on."""

    def middleware(request):
        request.tenant = "acme"
        response = get_response(request)
        response.set_cookie("tracker", "1")
        return response

    return middleware


def bouncer_middleware(get_response):
    """Refuse requests with credentials, which are unknown here."""

    def middleware(request):
        if "authorization" in request.headers or request.COOKIES:
            return HttpResponse("Who?", status=401)
        return get_response(request)

    return middleware


def closed_middleware(get_response):
    """Answer in place of the view, with details that callers must not see."""
    return lambda request: HttpResponse("<pre>SETTINGS</pre>", status=503)


router = SimpleRouter()
router.register("tags", SpaceViewSet, basename="space")
spaces = (router.urls, "spaces")

urlpatterns = [
    path("stubborn/", StubbornView.as_view(), name="stubborn"),
    path("cached/", CachedView.as_view(), name="cached"),
    path("who/", WhoView.as_view(), name="who"),
    path("nested/", NestedView.as_view(), name="nested"),
    path("memory/", MemoryView.as_view(), name="memory"),
    path("make/<str:word>/", TagMaker.as_view(), name="make"),
    path("free/<str:word>/", FreeTagMaker.as_view(), name="free"),
    path("plain/", plain, name="plain"),
    path("guarded/", guarded, name="guarded"),
    path("who-behind-login/", login_required(WhoView.as_view()), name="who-guarded"),
    path("protected/", protected, name="protected"),
    path("file/", FileView.as_view(), name="file"),
    path("address/<str:word>/", AddressView.as_view(), name="address"),
    path("choosy/", ChoosyView.as_view(), name="choosy"),
    path("v1/", include(spaces, namespace="v1")),
    path("v2/", include(spaces, namespace="v2")),
]
