"""``manage.py mcp_rotate_keys``: re-encrypt upstream access with the first of ``FIELD_KEYS``."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.db import router, transaction

from mcp_django.oauth.models import UpstreamGrant, UpstreamTransaction
from mcp_django.oauth.upstream.conf import UpstreamRefused
from mcp_django.oauth.upstream.grants import decrypt, encrypt


class Command(BaseCommand):
    """Re-encrypt every row; the old keys can be removed afterwards."""

    help = "Re-encrypt upstream access with the first key of OAUTH['FIELD_KEYS']."

    def handle(self, *args: Any, **options: Any) -> None:
        """Re-encrypt, and report how many rows cannot be decrypted with any key."""
        done = lost = 0
        for pk in UpstreamGrant.objects.exclude(access_cipher=b"").values_list("pk", flat=True):
            # Locked against a concurrent renewal.
            with transaction.atomic(using=router.db_for_write(UpstreamGrant)):
                grant = UpstreamGrant.objects.select_for_update().get(pk=pk)
                ciphers = {"access_cipher": grant.access_cipher}
                if grant.refresh_cipher:
                    ciphers["refresh_cipher"] = grant.refresh_cipher
                try:
                    changes = {name: encrypt(decrypt(cipher)) for name, cipher in ciphers.items()}
                except UpstreamRefused:
                    lost += 1
                    continue
                UpstreamGrant.objects.filter(pk=pk).update(**changes)
                done += 1
        # Transactions expire after ten minutes, and their users can start again.
        UpstreamTransaction.objects.all().delete()
        self.stdout.write(f"Upstream access re-encrypted with the first key: {done}.")
        if lost:
            self.stderr.write(
                f"Not decryptable with any key: {lost}. These users have to connect again."
            )
