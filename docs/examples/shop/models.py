from django.conf import settings
from django.db import models
from django.utils import timezone


class Order(models.Model):
    class Status(models.TextChoices):
        OPEN = "open"
        PAID = "paid"
        SHIPPED = "shipped"

    number = models.CharField(max_length=20, unique=True)
    customer = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="orders"
    )
    status = models.CharField(max_length=20, choices=Status, default=Status.OPEN)
    total = models.DecimalField(max_digits=10, decimal_places=2)
    placed_at = models.DateTimeField(default=timezone.now)
    note = models.TextField(blank=True)
    invoice = models.FileField(upload_to="invoices", blank=True)

    class Meta:
        permissions = [("refund_order", "Can refund orders")]

    def __str__(self) -> str:
        return self.number


class Line(models.Model):
    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    product = models.CharField(max_length=100)
    quantity = models.PositiveIntegerField(default=1)

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"
