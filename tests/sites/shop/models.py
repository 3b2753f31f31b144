"""Customers, what they buy, and columns that are confidential."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models


class Customer(models.Model):
    """Who buys; the password is a secret."""

    name = models.CharField(max_length=100)
    email = models.EmailField(unique=True)
    password = models.CharField(max_length=100, default="secret")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
    )
    referrer = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, related_name="referred"
    )

    def __str__(self) -> str:
        return self.name


class Passport(models.Model):
    """A reverse relation to one."""

    customer = models.OneToOneField(Customer, models.CASCADE)
    country = models.CharField(max_length=2)
    number = models.CharField(max_length=20)

    def __str__(self) -> str:
        return f"{self.country} passport"


class Category(models.Model):
    """A key that means something."""

    code = models.SlugField(primary_key=True, max_length=20)
    title = models.CharField(max_length=100)
    parent = models.ForeignKey(
        "self", models.CASCADE, null=True, blank=True, related_name="children"
    )

    class Meta:
        verbose_name_plural = "categories"

    def __str__(self) -> str:
        return self.title


class Tag(models.Model):
    """A word."""

    word = models.CharField(max_length=30, unique=True)
    secret = models.CharField(max_length=30, blank=True)

    def __str__(self) -> str:
        return self.word


class Product(models.Model):
    """A column of every kind."""

    class Size(models.TextChoices):
        """In what sizes it comes."""

        SMALL = "s", "Small"
        LARGE = "l", "Large"

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=100, help_text="As it is on the label.")
    description = models.TextField(blank=True)
    category = models.ForeignKey(Category, models.PROTECT, related_name="products")
    price = models.DecimalField(
        max_digits=8, decimal_places=2, validators=[MinValueValidator(0), MaxValueValidator(99999)]
    )
    cost = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    weight = models.FloatField(null=True, blank=True)
    stock = models.PositiveIntegerField(default=0)
    rating = models.IntegerField(choices=[(1, "Bad"), (2, "Fair"), (3, "Good")], default=2)
    size = models.CharField(max_length=1, choices=Size.choices, default=Size.SMALL)
    is_active = models.BooleanField(default=True)
    released = models.DateField(null=True, blank=True)
    sold_from = models.TimeField(null=True, blank=True)
    lead_time = models.DurationField(null=True, blank=True)
    details = models.JSONField(default=dict, blank=True)
    digest = models.BinaryField(default=b"", blank=True)
    address = models.GenericIPAddressField(null=True, blank=True)
    manual = models.FileField(upload_to="manuals", blank=True)
    photo = models.ImageField(upload_to="photos", blank=True)
    tags = models.ManyToManyField(Tag, blank=True, related_name="products")
    margin = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """Who bought when, with notes that are for staff alone."""

    class Status(models.TextChoices):
        """How far it is."""

        OPEN = "open", "Open"
        PAID = "paid", "Paid"
        SHIPPED = "shipped", "On its way"

    number = models.CharField(max_length=20, unique=True)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.OPEN)
    customer = models.ForeignKey(Customer, models.CASCADE, related_name="orders")
    total = models.DecimalField(max_digits=10, decimal_places=2, default=0)
    placed_at = models.DateTimeField()
    paid_at = models.DateTimeField(null=True, blank=True)
    note = models.CharField(max_length=200, blank=True)
    internal_note = models.CharField(max_length=200, blank=True)
    margin = models.IntegerField(default=0)

    class Meta:
        ordering = ["-margin"]
        constraints = [
            models.CheckConstraint(condition=models.Q(total__gte=0), name="shop_total_positive")
        ]

    def __str__(self) -> str:
        return self.number


class OpenOrder(Order):
    """Another name for a row."""

    class Meta:
        proxy = True


class OrderLine(models.Model):
    """One product of an order."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, models.PROTECT, related_name="+")
    quantity = models.PositiveIntegerField(default=1)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    secret = models.CharField(max_length=30, blank=True)

    def __str__(self) -> str:
        return f"{self.quantity} pieces"


class Ledger(models.Model):
    """A key whose order tells something, and nothing else that is unique."""

    iban = models.CharField(primary_key=True, max_length=34)
    owner = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.owner


class SpecialOrder(Order):
    """A row that is two rows."""

    wish = models.CharField(max_length=50, blank=True)


class Remark(models.Model):
    """Something said about anything."""

    text = models.CharField(max_length=100)
    content_type = models.ForeignKey("contenttypes.ContentType", models.CASCADE)
    object_id = models.UUIDField()
    about = GenericForeignKey("content_type", "object_id")

    def __str__(self) -> str:
        return self.text


class Voucher(models.Model):
    """A key that says nothing, a foreign key to a word, and remarks."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tag = models.ForeignKey(Tag, models.CASCADE, to_field="word", related_name="vouchers")
    worth = models.IntegerField(default=0)
    double = models.GeneratedField(
        expression=models.F("worth") * 2, output_field=models.IntegerField(), db_persist=True
    )
    remarks = GenericRelation(Remark)

    def __str__(self) -> str:
        return f"worth {self.worth}"


class Wallet(models.Model):
    """A key that is another row's."""

    customer = models.OneToOneField(Customer, models.CASCADE, primary_key=True)
    coins = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.coins} coins"
