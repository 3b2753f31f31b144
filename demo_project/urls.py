"""URLconf of the demo: its pages, REST API, MCP servers, admin and OAuth endpoints."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import include, path
from django.views.generic import TemplateView
from rest_framework.routers import DefaultRouter

from demo_project.desk.api import NoticeViewSet
from demo_project.desk.views import PublishNoticeView, ReportProblemView, notice_board
from demo_project.servers import staff
from mcp_django import mcp

sign_in = LoginView.as_view(template_name="desk/form.html", extra_context={"title": "Sign in"})
router = DefaultRouter()
router.register("notices", NoticeViewSet)

urlpatterns = [
    path("", TemplateView.as_view(template_name="desk/home.html"), name="home"),
    path("board/<str:airport>/", notice_board, name="notice-board"),
    path("publish/", PublishNoticeView.as_view(), name="publish-notice"),
    path("report/", ReportProblemView.as_view(), name="report-problem"),
    path("api/", include(router.urls)),
    path("mcp", mcp.urls),
    path("staff/mcp", staff.urls),
    path("login/", sign_in, name="login"),
    path("admin/", admin.site.urls),
    path("", include("mcp_django.oauth.urls")),
    path("", include("mcp_django.oauth.urls_2025_03_26")),
]
