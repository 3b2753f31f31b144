"""REST API of notices, for the screens in the terminals; `desk.mcp` exposes it to MCP clients."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from rest_framework import filters, pagination, permissions, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from demo_project.desk.models import Notice


class NoticeSerializer(serializers.ModelSerializer):
    airport = serializers.SlugRelatedField(slug_field="icao", read_only=True)

    class Meta:
        model = Notice
        fields = ["id", "airport", "severity", "title", "text", "published_at"]


class SuccessorSerializer(serializers.ModelSerializer):
    """The content of a notice that replaces another."""

    class Meta:
        model = Notice
        fields = ["severity", "title", "text"]


class NoticePagination(pagination.LimitOffsetPagination):
    default_limit = 20
    max_limit = 100


class NoticePermissions(permissions.DjangoModelPermissions):
    """Every account can read; a POST needs the permissions to add and to change a notice."""

    perms_map = {
        **permissions.DjangoModelPermissions.perms_map,
        "POST": ["%(app_label)s.add_%(model_name)s", "%(app_label)s.change_%(model_name)s"],
    }


class NoticeViewSet(viewsets.ReadOnlyModelViewSet):
    """The current notices of all airports, newest first."""

    queryset = Notice.objects.current().select_related("airport")
    serializer_class = NoticeSerializer
    lookup_field = "id"
    permission_classes = [NoticePermissions]
    pagination_class = NoticePagination
    filter_backends = [filters.SearchFilter]
    search_fields = ["title", "text", "severity", "=airport__icao", "=airport__iata"]

    @action(detail=True, methods=["post"], serializer_class=SuccessorSerializer)
    def replace(self, request: Request, **kwargs: Any) -> Response:
        """Replace a current notice with another of the same airport: close one and publish one."""
        with transaction.atomic():
            old = self.get_object()
            successor = self.get_serializer(data=request.data)
            successor.is_valid(raise_exception=True)
            old.close()
            new = successor.save(airport=old.airport, created_by=request.user)
        return Response(NoticeSerializer(new).data, status=201)
