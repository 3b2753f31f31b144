"""An admin site with the orders of the shop, and its members of staff."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import Permission
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from mcp_django import MCPServer
from mcp_django.test import MCPClient
from tests.kit.servers import person
from tests.sites.shop.models import Order


class Large(admin.SimpleListFilter):
    """A filter that is code."""

    title = "size"
    parameter_name = "size"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        return [("large", "Large")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return every row."""
        return queryset


class OrderAdmin(admin.ModelAdmin):
    """What the desk sees of an order; the notes of the house are hidden from its new people."""

    list_display = ["number", "status", "total", "customer", "shout"]
    list_filter = ["status", Large, ("customer", admin.RelatedOnlyFieldListFilter)]
    search_fields = ["^number", "customer__email", "=total"]
    date_hierarchy = "placed_at"
    ordering = ["-placed_at", "margin"]
    fields = ["number", "status", "customer", "placed_at", "total", "note", "internal_note"]
    exclude = ["internal_note"]
    readonly_fields = ["total"]
    actions = ["mark_paid", "export", "ask", "leave", "grumble", "quiet", "tell", "look"]

    @admin.display(description="Loud")
    def shout(self, obj: Order) -> str:
        """A column that is code."""
        return obj.number.upper()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Exclude the orders that are noted as hidden."""
        return super().get_queryset(request).exclude(note="hidden")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Let only users who may delete write the note."""
        names = list(super().get_readonly_fields(request, obj))
        return names if request.user.has_perm("shop.delete_order") else [*names, "note"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Deny changes of shipped orders."""
        allowed = super().has_change_permission(request, obj)
        return bool(allowed and (obj is None or obj.status != "shipped"))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Deny orders that are noted as secret."""
        allowed = super().has_view_permission(request, obj)
        return bool(allowed and (obj is None or obj.note != "secret"))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Record who saved it."""
        obj.internal_note = f"saved by {request.user}"
        super().save_model(request, obj, form, change)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Record who deleted it."""
        obj.customer.name = f"lost by {request.user}"
        obj.customer.save()
        super().delete_model(request, obj)

    @admin.action(
        description="Mark selected %(verbose_name_plural)s as paid", permissions=["change"]
    )
    def mark_paid(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Mark them."""
        number = queryset.update(status="paid")
        self.message_user(request, f"{number} orders are paid.", messages.SUCCESS)

    @admin.action(description="Export as CSV.")
    def export(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        """Give a file."""
        rows = "\n".join(order.number for order in queryset.order_by("number"))
        return HttpResponse(
            rows,
            content_type="text/csv",
            headers={"Content-Disposition": 'attachment; filename="orders.csv"'},
        )

    def ask(self, request: HttpRequest, queryset: QuerySet[Any]) -> TemplateResponse:
        """Write, and then ask on a page."""
        queryset.update(status="paid")
        return TemplateResponse(request, "admin/base_site.html", {})

    def leave(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseRedirect:
        """Go elsewhere."""
        return HttpResponseRedirect("/somewhere/?ids=1")

    def grumble(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Say that it failed."""
        self.message_user(request, "The printer is on fire.", messages.ERROR)

    def quiet(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Say nothing."""

    def tell(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Say what was posted."""
        posted = sorted(request.POST.getlist("_selected_action"))
        self.message_user(request, f"{request.method} {request.POST['action']} {len(posted)}")

    def look(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        """Find nothing."""
        return HttpResponse("gone", status=404)


def site(*extra: tuple[type[Any], type[Any]], orders: type[Any] = OrderAdmin) -> admin.AdminSite:
    """Return an admin site with the orders and the other models that are given."""
    made = admin.AdminSite("desk")
    made.register(Order, orders)
    for model, model_admin in extra:
        made.register(model, model_admin)
    return made


def server(*, orders: type[Any] = OrderAdmin, **options: Any) -> MCPServer:
    """Return a server that exposes the orders through their admin."""
    made = MCPServer("desk")
    made.register_admin(Order, site=site(orders=orders), **options)
    return made


def clerk(*codenames: str, username: str = "ada", is_staff: bool = True) -> Any:
    """Return a member of staff with these permissions."""
    user = person(username, is_staff=is_staff)
    for codename in codenames:
        user.user_permissions.add(
            Permission.objects.get(codename=codename, content_type__app_label="shop")
        )
    return type(user).objects.get(pk=user.pk)


def client(*codenames: str, **options: Any) -> MCPClient:
    """Return a client of the desk for a member of staff with these permissions."""
    return MCPClient(server=server(**options), user=clerk(*(codenames or ("view_order",))))
