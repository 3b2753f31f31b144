"""The toolkit's own addresses, a form to sign in, and files that only its tokens open."""

from __future__ import annotations

from django.contrib.auth.views import LoginView
from django.http import HttpRequest, JsonResponse
from django.urls import include, path
from oauth2_provider.views import ProtectedResourceView


class Files(ProtectedResourceView):
    def get(self, request: HttpRequest) -> JsonResponse:
        return JsonResponse({"owner": request.resource_owner.username})


urlpatterns = [
    path("login/", LoginView.as_view(template_name="login.html"), name="login"),
    path("files", Files.as_view()),
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
]
