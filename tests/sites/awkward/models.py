"""The user of the awkward site."""

from __future__ import annotations

import uuid

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models


class MemberManager(BaseUserManager["Member"]):
    """Finds members by their address."""


class Member(AbstractBaseUser, PermissionsMixin):
    """Somebody with an address and no name; active as far as the base class says."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    email = models.EmailField(unique=True)

    objects = MemberManager()
    USERNAME_FIELD = "email"

    class Meta:
        app_label = "awkward"

    def __str__(self) -> str:
        return self.email


class Reading(models.Model):
    """A row that lives in the second database."""

    value = models.IntegerField()

    class Meta:
        app_label = "awkward"

    def __str__(self) -> str:
        return str(self.value)
