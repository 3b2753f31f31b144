"""The URLs of a site with an authorization server of its own."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from tests.oauth.servers import billing, orders

urlpatterns = [
    path("mcp", orders.urls),
    path("billing/mcp", billing.urls),
    path("login/", LoginView.as_view(template_name="admin/login.html"), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("", include("mcp_django.oauth.urls")),
    path("", include("mcp_django.oauth.urls_2025_03_26")),
    path("admin/", admin.site.urls),
]
