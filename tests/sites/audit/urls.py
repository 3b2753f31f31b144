"""Where the site has its servers, views and endpoints."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from tests.sites.audit import site

router = SimpleRouter()
router.register("notes", site.NoteViewSet)
urlpatterns = [
    path("notes/mcp", site.notes.urls),
    path("rest/mcp", site.rest.urls),
    path("staff/mcp", site.staff.urls),
    path("write/", site.write_view, name="write"),
    path("write-async/", site.write_async_view, name="write-async"),
    path("write-form/", site.NoteView.as_view(), name="write-form"),
    path("api/", include(router.urls)),
    path("admin/", site.notes_admin.urls),
]
