"""Forms of the desk, for browsers and for MCP clients."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.mail import send_mail

from demo_project.airports.models import Airport
from demo_project.desk.models import Notice

MAINTENANCE = "maintenance@localhost"


class AirportField(forms.CharField):
    """An airport by ICAO or IATA code, in either case; 28 000 are too many for a select box."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            max_length=4, help_text="ICAO code such as EGLL, or IATA code such as LHR.", **options
        )

    def clean(self, value: Any) -> Airport:
        code = super().clean(value)
        try:
            return Airport.objects.by_code(code)
        except Airport.DoesNotExist as exc:
            raise forms.ValidationError(str(exc), code="unknown") from exc

    def prepare_value(self, value: Any) -> Any:
        """Return the code of a notice's airport, for which the form has the primary key."""
        if isinstance(value, int):
            return Airport.objects.values_list("icao", flat=True).get(pk=value)
        return value


class NoticeForm(forms.ModelForm):
    airport = AirportField()

    class Meta:
        model = Notice
        fields = ["airport", "title", "text", "severity"]

    def clean_airport(self) -> Airport:
        airport: Airport = self.cleaned_data["airport"]
        if self.instance.pk and airport.pk != self.instance.airport_id:
            # Subscribers of the old airport would not be notified that its notice is gone.
            raise forms.ValidationError(
                "A notice cannot change its airport; publish another one there."
            )
        return airport


class ProblemForm(forms.Form):
    airport = AirportField()
    place = forms.CharField(max_length=80, help_text="Where on the airport, as in “taxiway N”.")
    problem = forms.CharField(
        max_length=1000, widget=forms.Textarea, help_text="What is broken, and how you know."
    )
    is_urgent = forms.BooleanField(
        required=False, label="Urgent", help_text="Whether it endangers traffic now."
    )

    def send(self, *, reporter: User) -> None:
        """Mail the report to maintenance."""
        cleaned_data = self.cleaned_data
        urgent = "URGENT: " if cleaned_data["is_urgent"] else ""
        # A subject must not contain line breaks.
        place = " ".join(cleaned_data["place"].split())
        send_mail(
            f"{urgent}{cleaned_data['airport'].icao}, {place}",
            f"{cleaned_data['problem']}\n\nReported by {reporter.get_username()}.",
            None,
            [MAINTENANCE],
        )
