"""Where the example site has its REST views."""

from django.urls import include, path
from rest_framework.routers import DefaultRouter

from tests.integrations.rest import views, viewsets

router = DefaultRouter()
router.register("orders", viewsets.OrderViewSet, basename="order")
router.register("categories", viewsets.CategoryViewSet)
router.register("wares", viewsets.ProductViewSet, basename="ware")
router.register("moods", viewsets.MoodViewSet, basename="mood")
router.register(
    r"orders/(?P<order_number>[^/.]+)/lines", viewsets.LineViewSet, basename="order-line"
)

urlpatterns = [
    path("greet/<str:name>/", views.greet, name="greet"),
    path("greet/<str:name>/<int:times>/", views.greet, name="greet-often"),
    path("ping/", views.ping, name="ping"),
    path("add/<int:a>/<int:b>/", views.AddView.as_view(), name="add"),
    path("products/", views.ProductListView.as_view(), name="products"),
    path("products/<slug:slug>/", views.ProductView.as_view(), name="product"),
    path("tags/<int:pk>/", views.TagView.as_view(), name="tag"),
    path("customers/", views.CustomerCreateView.as_view(), name="customers"),
    path("customers/<int:customer_pk>/orders/", views.CustomerOrdersView.as_view(), name="theirs"),
    path("ledger/", views.LedgerView.as_view(), name="ledger"),
    path("rare/", views.RareView.as_view(), name="rare"),
    path("friends/", views.FriendView.as_view(), name="friends"),
    path("feedback/", views.FeedbackView.as_view(), name="feedback"),
    path("multipart/", views.MultipartView.as_view(), name="multipart"),
    path("upload/", views.UploadView.as_view(), name="upload"),
    path("csv/", views.CSVView.as_view(), name="csv"),
    path("picture/", views.PictureView.as_view(), name="picture"),
    path("<str:version>/path/", views.PathVersionView.as_view(), name="path-version"),
    path("header/", views.HeaderVersionView.as_view(), name="header-version"),
    path("query/", views.QueryVersionView.as_view(), name="query-version"),
    path("odd/<str:kind>/", views.OddErrorsView.as_view(), name="odd"),
    path("outcome/<str:how>/", views.OutcomeView.as_view(), name="outcome"),
    path("surroundings/", views.SurroundingsView.as_view(), name="surroundings"),
    path("", include(router.urls)),
]
