"""Views of every kind that are not viewsets."""

from __future__ import annotations

import django_filters
from django.http import HttpResponse, HttpResponseRedirect
from rest_framework import generics, status
from rest_framework.decorators import api_view, permission_classes, throttle_classes
from rest_framework.exceptions import APIException
from rest_framework.filters import OrderingFilter, SearchFilter
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.pagination import CursorPagination, PageNumberPagination
from rest_framework.parsers import FormParser, MultiPartParser
from rest_framework.permissions import AllowAny, BasePermission, IsAuthenticated
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response
from rest_framework.throttling import ScopedRateThrottle, UserRateThrottle
from rest_framework.versioning import (
    AcceptHeaderVersioning,
    QueryParameterVersioning,
    URLPathVersioning,
)
from rest_framework.views import APIView

from tests.integrations.rest.serializers import (
    CustomerSerializer,
    FeedbackSerializer,
    LedgerSerializer,
    OrderSerializer,
    ProductSerializer,
    TagSerializer,
    UploadSerializer,
)
from tests.sites.shop.models import Customer, Ledger, Order, Product, Tag


@api_view(["GET"])
def greet(request, name, times=1):
    """Greet somebody."""
    return Response({"greeting": f"Hello {name}" * int(times), "by": str(request.user)})


class TwiceADay(UserRateThrottle):
    rate = "2/day"


@api_view(["POST"])
@permission_classes([IsAuthenticated])
@throttle_classes([TwiceADay])
def ping(request):
    return Response({"got": request.data, "auth": type(request.auth).__name__})


class AddView(APIView):
    """Add two numbers."""

    permission_classes = [AllowAny]

    def get(self, request, a: int, b: int):
        return Response(
            {"sum": a + b, "path": request.path, "absolute": request.build_absolute_uri()}
        )

    def post(self, request, a: int, b: int):
        return Response({"sum": a + b, "plus": request.data}, status=status.HTTP_201_CREATED)


class ProductFilter(django_filters.FilterSet):
    price = django_filters.RangeFilter()
    word = django_filters.ModelMultipleChoiceFilter(
        field_name="tags__word", to_field_name="word", queryset=Tag.objects.all()
    )
    size_in = django_filters.BaseInFilter(field_name="size", lookup_expr="in")
    any_name = django_filters.AllValuesFilter(field_name="name")

    class Meta:
        model = Product
        fields = {"size": ["exact"], "is_active": ["exact"], "released": ["gte", "lt"]}


class Pages(PageNumberPagination):
    page_size = 2
    page_size_query_param = "page_size"
    max_page_size = 10


class ProductListView(generics.ListCreateAPIView):
    queryset = Product.objects.order_by("pk")
    serializer_class = ProductSerializer
    filter_backends = [
        django_filters.rest_framework.DjangoFilterBackend,
        SearchFilter,
        OrderingFilter,
    ]
    filterset_class = ProductFilter
    search_fields = ["name", "description"]
    ordering_fields = ["name", "price"]
    pagination_class = Pages


class ProductView(generics.RetrieveAPIView):
    queryset = Product.objects.all()
    serializer_class = ProductSerializer
    lookup_field = "slug"


class TagView(generics.RetrieveUpdateDestroyAPIView):
    queryset = Tag.objects.all()
    serializer_class = TagSerializer


class CustomerCreateView(generics.CreateAPIView):
    queryset = Customer.objects.all()
    serializer_class = CustomerSerializer
    permission_classes = [IsAuthenticated]


class CustomerOrdersView(generics.ListAPIView):
    serializer_class = OrderSerializer

    def get_queryset(self):
        return Order.objects.filter(customer=self.kwargs["customer_pk"]).order_by("number")


class LedgerPages(CursorPagination):
    page_size = 2
    ordering = "owner"


class LedgerView(generics.ListAPIView):
    queryset = Ledger.objects.all()
    serializer_class = LedgerSerializer
    pagination_class = LedgerPages


class Scoped(ScopedRateThrottle):
    THROTTLE_RATES = {"rare": "1/hour"}


class RareView(APIView):
    throttle_classes = [Scoped]
    throttle_scope = "rare"

    def get(self, request):
        return Response("here")


class IsFriend(BasePermission):
    message = "Only friends come in."

    def has_permission(self, request, view):
        return request.user.username == "friend"


class FriendView(APIView):
    permission_classes = [IsFriend]

    def get(self, request):
        return Response({"welcome": request.user.username})


class FeedbackView(generics.GenericAPIView):
    """Say what you think."""

    serializer_class = FeedbackSerializer
    parser_classes = [FormParser]

    def post(self, request):
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return Response({"content_type": request.content_type, **serializer.validated_data})


class MultipartView(FeedbackView):
    parser_classes = [MultiPartParser]

    def post(self, request):
        return super().post(request)


class UploadView(generics.GenericAPIView):
    serializer_class = UploadSerializer

    def post(self, request):
        return Response({})


class CSVRenderer(BaseRenderer):
    media_type = "text/csv"
    format = "csv"

    def render(self, data, accepted_media_type=None, renderer_context=None):
        return "\n".join(",".join(map(str, row)) for row in data)


class CSVView(APIView):
    renderer_classes = [CSVRenderer]

    def get(self, request):
        return Response([["a", "b"], [1, 2]])


class PNGRenderer(BaseRenderer):
    media_type = "image/png"
    format = "png"
    charset = None
    render_style = "binary"

    def render(self, data, accepted_media_type=None, renderer_context=None):
        return b"\x89PNG"


class PictureView(APIView):
    renderer_classes = [PNGRenderer]

    def get(self, request):
        return Response(None)


class VersionView(APIView):
    def get(self, request, **kwargs):
        return Response({"version": request.version, "path": request.path})


class PathVersionView(VersionView):
    versioning_class = URLPathVersioning


class HeaderVersionView(VersionView):
    versioning_class = AcceptHeaderVersioning


class QueryVersionView(VersionView):
    versioning_class = QueryParameterVersioning


class Teapot(APIException):
    status_code = 418
    default_detail = "Short and stout."


class OddErrorsView(APIView):
    """Fails in its own words."""

    def get_exception_handler(self):
        return lambda exc, context: Response(
            {"error": {"kind": type(exc).__name__, "text": str(exc)}},
            status=getattr(exc, "status_code", 400),
        )

    def get(self, request, kind: str):
        if kind == "value":
            raise ValueError("not this")
        raise Teapot


class OutcomeView(APIView):
    """Ends in one of several ways."""

    def get(self, request, how: str):
        if how == "bug":
            raise ZeroDivisionError("secret of the code")
        if how == "html":
            return HttpResponse("<h1>Title</h1><script>x()</script><p>Text</p>")
        if how == "redirect":
            return HttpResponseRedirect("/elsewhere/")
        if how == "conflict":
            return Response({"reason": "Somebody was faster."}, status=409)
        return Response(status=204)


class FussyNegotiation(DefaultContentNegotiation):
    def select_renderer(self, request, renderers, format_suffix=None):
        return renderers[0], renderers[0].media_type


class SurroundingsView(APIView):
    content_negotiation_class = FussyNegotiation

    def get(self, request):
        meta = request.META
        return Response(
            {
                "authorization": meta.get("HTTP_AUTHORIZATION", "").partition(" ")[0],
                "cookies": request.COOKIES,
                "session": request.session.session_key,
                "user": request.user.username,
                "django_user": request._request.user.username,
                "query": request.query_params.dict(),
                "url_name": request.resolver_match.url_name,
            }
        )
