"""Print the groups and the rows of the call log as JSON: what is left when a process has ended."""

import json
import sys

import django

django.setup()

from django.contrib.auth.models import Group  # noqa: E402

from mcp_django.models import Call, Session  # noqa: E402

calls = Call.objects.exclude(component="waits").order_by("pk")
contents = {
    "groups": sorted(Group.objects.values_list("name", flat=True)),
    "calls": [list(row) for row in calls.values_list("component", "outcome")],
    "tokens": len(set(calls.values_list("token", flat=True))),
    "sessions": Session.objects.count(),
}
sys.stdout.write(json.dumps(contents))
