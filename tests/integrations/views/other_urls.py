"""The URLs of another host of the site."""

from django.urls import path

from mcp_django import mcp
from tests.integrations.views import forms, pages

urlpatterns = [
    path("mcp", mcp.urls),
    path("only/<slug:word>/", pages.Numbers.as_view(), name="only_here"),
    path("add/", forms.AddGroupView.as_view(), name="add_here"),
    path("elsewhere/<int:number>/", pages.Numbers.as_view(), name="echo"),
]
