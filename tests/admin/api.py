"""An API of groups, for sites with REST framework."""

from django.contrib.auth.models import Group
from rest_framework.routers import DefaultRouter
from rest_framework.serializers import FileField, ModelSerializer
from rest_framework.viewsets import ModelViewSet


class GroupSerializer(ModelSerializer):
    emblem = FileField(required=False, write_only=True)

    class Meta:
        model = Group
        fields = ["id", "name", "emblem"]


class GroupViewSet(ModelViewSet):
    """The groups of the site."""

    queryset = Group.objects.order_by("pk")
    serializer_class = GroupSerializer


router = DefaultRouter()
router.register("groups", GroupViewSet)
