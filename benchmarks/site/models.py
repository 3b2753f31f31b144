"""The table that the tools and the views read."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

ROWS = 1000


class Row(models.Model):
    """One of a thousand rows."""

    FIELDS: ClassVar = ("id", "name", "value", "created")

    name = models.CharField(max_length=100)
    value = models.IntegerField()
    created = models.DateTimeField()

    class Meta:
        db_table = "bench_row"
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.name
