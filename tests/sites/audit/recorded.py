"""What each package recorded of the last change of a note."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auditlog.models import LogEntry
from django.apps import apps
from django.contrib.auth.models import User
from easyaudit.models import CRUDEvent
from reversion.models import Version

from tests.sites.audit.models import Note

NOBODY = "nobody"
NOTHING = "no record"


def _simple_history(note: Note) -> Any:
    return note.history.latest().history_user


def _auditlog(note: Note) -> Any:
    return LogEntry.objects.get_for_object(note).latest("pk").actor


def _crum(note: Note) -> Any:
    return note.crum_user


def _reversion(note: Note) -> Any:
    return Version.objects.get_for_object(note).latest("pk").revision.user


def _pghistory(note: Note) -> Any:
    event = apps.get_model("audit", "NoteEvent").objects.filter(pgh_obj=note).latest("pk")
    key = event.pgh_context.metadata["user"] if event.pgh_context else None
    return None if key is None else User.objects.get(pk=key)


PACKAGES: dict[str, Callable[[Note], Any]] = {
    "simple_history": _simple_history,
    "auditlog": _auditlog,
    "crum": _crum,
    "reversion": _reversion,
    **({"pghistory": _pghistory} if apps.is_installed("pghistory") else {}),
}


def recorded(text: str) -> dict[str, str]:
    """Return the names that the packages recorded for the last change of the note of this text."""
    note = Note.objects.get(text=text)
    return {package: _name(find, note) for package, find in PACKAGES.items()}


def easy_audit_user(text: str) -> str:
    """Return the name that django-easy-audit recorded, of which this package knows nothing."""
    note = Note.objects.get(text=text)
    events = CRUDEvent.objects.filter(object_id=note.pk, content_type__model="note")
    return _name(lambda _: events.latest("pk").user, note)


def _name(find: Callable[[Note], Any], note: Note) -> str:
    try:
        user = find(note)
    except (Version.DoesNotExist, LogEntry.DoesNotExist, CRUDEvent.DoesNotExist):
        return NOTHING
    return NOBODY if user is None else user.get_username()
