"""A contract file, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from mcp_django.management.contract.canonical import is_sealed
from mcp_django.management.contract.document import FORMAT, PLURALS, SERVERS

MAX_BYTES = 64 * 1024 * 1024
MAKE = "manage.py mcp contract"
AGAIN = f"make it again with: {MAKE}"


def read_contract(path: Path) -> dict[str, Any]:
    """The contract in a file.

    Raises:
        CommandError: there is none, or it is not as ``mcp contract`` wrote it.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CommandError(f"{path} is larger than {MAX_BYTES} bytes, and no contract is.")
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CommandError(f"There is no {path}; make it with: {MAKE}, and commit it.") from None
    except OSError as exc:
        raise CommandError(f"{path} cannot be read: {exc.strerror}.") from None
    except (ValueError, RecursionError) as exc:
        raise CommandError(f"{path} is no JSON ({exc}); {AGAIN}.") from None
    version = found.get("contract") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(found.get(SERVERS), dict):
        raise CommandError(f"{path} is no contract of mcp_django; {AGAIN}.")
    if version != FORMAT:
        raise CommandError(f"{path} has the format {version!r}, and {FORMAT} is known; {AGAIN}.")
    _check_seals(path, found)
    return found


def _check_seals(path: Path, contract: dict[str, Any]) -> None:
    """See that nobody wrote in it, and that no merge put together what was never so."""
    for name, server in contract[SERVERS].items():
        for plural in PLURALS:
            table = server.get(plural) if isinstance(server, dict) else None
            for key, component in (table if isinstance(table, dict) else {}).items():
                if not is_sealed(component) or not isinstance(component.get("definition"), dict):
                    raise _tampered(path, f"{plural} {key!r} of the server {name!r}")
        if not is_sealed(server):
            raise _tampered(path, f"the server {name!r}")
    if not is_sealed(contract):
        raise _tampered(path, "the whole")


def _tampered(path: Path, what: str) -> CommandError:
    return CommandError(
        f"{path}: the digest of {what} is not that of what is written there, so it was edited or "
        f"merged by hand; {AGAIN}, and look at the difference."
    )
