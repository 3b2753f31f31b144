"""The URLs of the views."""

from __future__ import annotations

from django.conf.urls.i18n import i18n_patterns
from django.urls import include, path, re_path, register_converter

from mcp_django import mcp
from tests.integrations.views import forms, pages


class YearConverter:
    """A year of four digits."""

    regex = "[0-9]{4}"

    def to_python(self, value: str) -> int:
        return int(value)

    def to_url(self, value: int) -> str:
        return f"{value:04d}"


register_converter(YearConverter, "test_year")

shop = (
    [
        path("price-list/<slug:season>/", pages.price_list, name="price_list"),
        path("thanks/", pages.who, name="thanks"),
        path("contact/", forms.ContactView.as_view(), name="contact"),
    ],
    "shop",
)

branch = [path("desk/<int:number>/", pages.Numbers.as_view(), name="desk")]

urlpatterns = [
    path("mcp", mcp.urls),
    path("shop/", include(shop)),
    path("article/<str:slug>/", pages.article, name="article"),
    path("who/", pages.who, name="who"),
    path("secret/", pages.secret, name="secret"),
    path("allowed/", pages.allowed, name="allowed"),
    path("sent-away/", pages.sent_away, name="sent-away"),
    path("who-async/", pages.who_async, name="who_async"),
    path("years/<test_year:year>/<int:number>/", pages.Numbers.as_view(), name="number"),
    path("years/<test_year:year>/", pages.Numbers.as_view(), name="number"),
    re_path(
        r"^digits/(?P<digits>[0-9]+)(?:/(?P<more>[a-z]+))?/$",
        pages.Numbers.as_view(),
        name="digits",
    ),
    re_path(r"^unnamed/([0-9]+)/$", pages.who, name="unnamed"),
    re_path(r"^(?:one|two)/(?P<word>[a-z]+)/$", pages.who, name="either"),
    path("first/", include((branch, "branch"), namespace="first")),
    path("branch/", include((branch, "branch"), namespace="branch")),
    path("files/<path:where>", pages.Numbers.as_view(), name="files"),
    path("things/<uuid:key>/", pages.thing, name="thing"),
    path("bare/", pages.Bare.as_view(), name="bare"),
    path("search/", pages.search, name="search"),
    path("echo/", pages.echo, name="echo"),
    path("image/", pages.image, name="image"),
    path("report/", pages.report, name="report"),
    path("rows/", pages.rows, name="rows"),
    path("endless/", pages.endless, name="endless"),
    path("endless-async/", pages.endless_async, name="endless_async"),
    path("boom/", pages.boom, name="boom"),
    path("missing/", pages.missing, name="missing"),
    path("gone/", pages.gone, name="gone"),
    path("forbidden/", pages.forbidden, name="forbidden"),
    path("shady/", pages.shady, name="shady"),
    path("conflict/", pages.conflict, name="conflict"),
    path("cookie/", pages.cookie, name="cookie"),
    path("sign-in/", pages.sign_in, name="sign_in"),
    path("elsewhere/", pages.elsewhere, name="elsewhere"),
    path("said/", pages.said, name="said"),
    path("nested/", pages.nested, name="nested"),
    path("cached/", pages.cached, name="cached"),
    path("cached-by-cookie/", pages.cached_by_cookie, name="cached_by_cookie"),
    path("tagged/", pages.tagged, name="tagged"),
    path("writes-and-fails/", pages.writes_and_fails, name="writes_and_fails"),
    path("prices/add/", pages.add_price, name="add_price"),
    path("groups/add/", forms.AddGroupView.as_view(), name="add_group"),
    path("groups/<int:pk>/", forms.EditGroupView.as_view(), name="edit_group"),
    path("groups/<int:pk>/silent/", forms.SilentEditView.as_view(), name="silent_edit"),
    path("groups/<int:pk>/moments/", forms.MomentView.as_view(), name="moments"),
    path("groups/<int:pk>/options/", forms.OptionsView.as_view(), name="options"),
    path("groups/<int:pk>/remove/", forms.RemoveGroupView.as_view(), name="remove_group"),
    path("changing/", forms.ChangingView.as_view(), name="changing"),
    path("list/", pages.rows_as_list, name="list"),
    path("pages/new/", pages.secret, name="new_page"),
    path("pages/<path:page>", pages.catch_all, name="catch_all"),
    *i18n_patterns(path("greeting/", pages.echo, name="greeting")),
]
