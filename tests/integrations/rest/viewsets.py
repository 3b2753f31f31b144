"""Viewsets of every kind."""

from rest_framework import viewsets
from rest_framework.decorators import action
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.response import Response

from tests.integrations.rest.serializers import (
    BriefOrderSerializer,
    CategorySerializer,
    OrderSerializer,
    PaymentSerializer,
    ProductSerializer,
)
from tests.integrations.rest.views import CSVRenderer
from tests.sites.shop.models import Category, Order, Product


class IsOwner(BasePermission):
    message = "This is somebody else's order."

    def has_object_permission(self, request, view, obj):
        return obj.customer.user_id == request.user.pk


class OrderViewSet(viewsets.ModelViewSet):
    """Orders of the shop."""

    queryset = Order.objects.order_by("number")
    lookup_field = "number"
    permission_classes = [IsAuthenticated, IsOwner]

    def get_serializer_class(self):
        return BriefOrderSerializer if self.action == "list" else OrderSerializer

    @action(detail=True, methods=["post"], serializer_class=PaymentSerializer)
    def pay(self, request, number=None):
        """Pay an order."""
        order = self.get_object()
        payment = PaymentSerializer(data=request.data)
        payment.is_valid(raise_exception=True)
        order.status = Order.Status.PAID
        order.save()
        return Response({"paid": str(payment.validated_data["amount"]), "action": self.action})

    @action(detail=True, methods=["post"])
    def ship(self, request, number=None):
        """Send an order on its way."""
        self.get_object()
        return Response({"sent": number, "basename": self.basename, "detail": self.detail})

    @action(detail=False)
    def recent(self, request):
        """The orders of today."""
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return Response([order.number for order in page or self.get_queryset()])

    @action(detail=True, renderer_classes=[CSVRenderer])
    def label(self, request, number=None):
        """What is printed on the parcel."""
        order = self.get_object()
        return Response([["to", order.customer.name]])

    @action(detail=True, methods=["get", "post"])
    def notes(self, request, number=None):
        """Notes of an order."""
        url = self.reverse_action("notes", args=[number])
        return Response({"method": request.method, "url": url})

    @notes.mapping.delete
    def clear_notes(self, request, number=None):
        """Throw the notes away."""
        return Response(status=204)


class Slices(LimitOffsetPagination):
    default_limit = 2


class CategoryViewSet(viewsets.ReadOnlyModelViewSet):
    queryset = Category.objects.order_by("code")
    serializer_class = CategorySerializer
    pagination_class = Slices


class ProductViewSet(viewsets.ModelViewSet):
    queryset = Product.objects.order_by("slug")
    serializer_class = ProductSerializer
    lookup_field = "slug"


class MoodViewSet(viewsets.ViewSet):
    """How everybody feels."""

    def list(self, request):
        return Response([{"mood": "good"}])

    def retrieve(self, request, pk=None):
        return Response({"mood": pk})

    def create(self, request):
        return Response({"got": request.data}, status=201)


class LineViewSet(viewsets.ViewSet):
    """Lines of an order, below it."""

    def list(self, request, order_number=None):
        return Response({"order": order_number, "action": self.action})

    def retrieve(self, request, pk=None, order_number=None):
        return Response({"order": order_number, "line": pk})
