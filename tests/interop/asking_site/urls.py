"""The endpoint of the fast ASGI handler, and the page that users are sent to."""

from django.urls import path

from tests.interop.asking_site.mcp import asking
from tests.interop.asking_site.pages import account

urlpatterns = [
    path("lane/mcp", asking.urls),
    path("accounts/<str:interaction_id>", account, name="account"),
]
