from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from shop.models import Order


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["number", "customer", "status", "total", "placed_at"]
    list_filter = ["status"]
    search_fields = ["number", "customer__email"]
    fields = ["status", "note"]
    actions = ["ship"]

    @admin.action(description="Ship the selected orders", permissions=["change"])
    def ship(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        number = queryset.filter(status="paid").update(status="shipped")
        self.message_user(request, f"{number} shipped.", messages.SUCCESS)
