"""``LogEntry`` rows for what was run for real, and for whatever ran as somebody else."""

from __future__ import annotations

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.utils.translation import gettext as _

from mcp_django.admin.trying.trials import Trial


def record(trial: Trial) -> None:
    """Leave an entry in the history of the server before something runs; values are not in it."""
    visit, caller = trial.visit, trial.caller
    text = _("Tried the %(kind)s “%(key)s”.")
    if caller.acting:
        text = _("Tried the %(kind)s “%(key)s” as the user “%(user)s”.")
    named = {"kind": trial.component.kind, "key": trial.key[:200], "user": caller.name}
    LogEntry.objects.create(
        user_id=str(visit.request.user.pk),
        content_type_id=ContentType.objects.get_for_model(visit.row).pk,
        object_id=str(visit.row.pk),
        object_repr=str(visit.row)[:200],
        action_flag=CHANGE,
        change_message=text % named,
    )
