"""What a client sees: the exact lists of one server, for any user, client, scopes and revision."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.http import Http404, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mcp_django.admin.pages import Visit, page
from mcp_django.admin.seen_lists import sight
from mcp_django.admin.seen_viewpoint import ViewpointForm, refuse_another


@page("seen", title=gettext_lazy("What a client sees"), permission="view_server")
def seen(visit: Visit) -> HttpResponseBase:
    """The choice, and what comes of it; looking as somebody else is noted in the history."""
    if visit.rest:
        raise Http404
    request = visit.request
    me: Any = request.user
    refuse_another(request)
    form = ViewpointForm(request, visit.server)
    context = {**visit.context, "form": form, "clients": form.suggested_clients()}
    if form.is_valid():
        viewpoint = form.viewpoint()
        if viewpoint.other:
            # Before anything is shown: it is a look at what somebody else may do.
            text = _("Looked at what clients of the user “%(user)s” see.")
            message = text % {"user": viewpoint.other}
            LogEntry.objects.log_actions(me.pk, [visit.row], CHANGE, message, single_object=True)
        context |= {"viewpoint": viewpoint, "sight": sight(visit.server, viewpoint)}
    return TemplateResponse(request, "admin/mcp_django/seen.html", context)
