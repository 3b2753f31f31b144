"""What tenants have: rows that name their tenant."""

from __future__ import annotations

from django.db import models


class Item(models.Model):
    """A row of one tenant."""

    tenant = models.CharField(max_length=20)
    number = models.IntegerField()
    name = models.CharField(max_length=40)

    class Meta:
        ordering = ["number"]
        app_label = "tenants"

    def __str__(self) -> str:
        return self.name
