"""The secret key of one installation of the demo: made at its first start, kept in a file.

A key in the repository would be no secret, and a new one at each start would end every session
and change every derived token.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.core.management.utils import get_random_secret_key


def read_or_create(path: Path) -> str:
    """The key in the file, which only its owner can read; a missing file is written first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        key = get_random_secret_key()
        file.write(f"{key}\n")
    return key
