"""The secret key of a demo installation: created at its first start and stored in a file.

A key in the repository would not be secret, and a new key at each start would end every session
and change every derived token.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.core.management.utils import get_random_secret_key


def read_or_create(path: Path) -> str:
    """Return the key in the file, which only its owner can read; create a missing file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        key = get_random_secret_key()
        file.write(f"{key}\n")
    return key
