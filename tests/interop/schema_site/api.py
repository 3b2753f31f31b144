"""The model by Django REST framework."""

from rest_framework import permissions, serializers, viewsets

from tests.interop.schema_site.models import Parcel


class ParcelSerializer(serializers.ModelSerializer[Parcel]):
    """Every column, and the price as a number."""

    amount = serializers.DecimalField(
        source="price", max_digits=8, decimal_places=2, coerce_to_string=False
    )
    slug = serializers.RegexField(r"(?i)^[a-z]+\-\d$")

    class Meta:
        model = Parcel
        fields = "__all__"


class ParcelViewSet(viewsets.ReadOnlyModelViewSet[Parcel]):
    """Parcels."""

    queryset = Parcel.objects.all()
    serializer_class = ParcelSerializer
    permission_classes = [permissions.AllowAny]
