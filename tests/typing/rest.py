"""Registering the views of REST framework, as a type checker sees it."""

from __future__ import annotations

from uuid import UUID

from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from mcp_django import mcp
from mcp_django.auth.permissions import IsStaff


class ReturnViewSet(ViewSet):
    def list(self, request: Request) -> Response:
        return Response([])


class ReportView(APIView):
    def get(self, request: Request, day: UUID) -> Response:
        return Response({})


@api_view(["GET"])
def health(request: Request) -> Response:
    return Response({})


mcp.register_viewset(ReturnViewSet, basename="return", actions=["list"], plural="returns")
mcp.register_viewset(ReturnViewSet, basename="v2:return", url_kwargs={"shop_pk": int}, version="v2")
mcp.register_api_view(ReportView, methods=["get"], name="report", permission=IsStaff)
mcp.register_api_view(ReportView, serializer=Serializer, fixed={"day": "2026-01-01"})
mcp.register_api_view(health, read_only=True, timeout=5)
