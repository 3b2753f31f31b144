"""A model with a column of each kind whose values or formats clients read differently."""

from __future__ import annotations

from django.db import models


class Parcel(models.Model):
    """Its key is a snowflake, as the services make them that number things without a sequence."""

    id = models.BigIntegerField(primary_key=True)
    parent = models.ForeignKey("self", models.CASCADE, null=True)
    serial = models.PositiveBigIntegerField()
    pieces = models.IntegerField()
    price = models.DecimalField(max_digits=8, decimal_places=2)
    weight = models.FloatField()
    code = models.UUIDField()
    day = models.DateField()
    moment = models.DateTimeField()
    closes = models.TimeField()
    takes = models.DurationField()
    page = models.URLField()
    mail = models.EmailField()
    address = models.GenericIPAddressField()
    slug = models.SlugField()
    previous = models.BigIntegerField(null=True)
    extra = models.JSONField()

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.slug
