"""A site with an admin, pages, forms, a page to sign in on and, where it is installed, an API."""

from importlib.util import find_spec

from django.contrib import admin
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, PasswordChangeView
from django.urls import include, path
from django.views.generic import FormView

from tests.integrations.views.urls import urlpatterns as pages


class OwnLogin(FormView):
    """A form that asks for a password, in a class of the site's own."""

    form_class = AuthenticationForm
    template_name = "nothing.html"


urlpatterns = [
    *pages,
    path("login/", LoginView.as_view(), name="login"),
    path("own-login/", OwnLogin.as_view(), name="groups-login"),
    path("password/", PasswordChangeView.as_view(), name="password_change"),
    path("admin/", admin.site.urls),
]

if find_spec("rest_framework"):
    from tests.admin.api import router

    urlpatterns += [path("api/", include(router.urls))]
