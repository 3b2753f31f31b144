"""Forms, and the class-based views that show them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse_lazy
from django.views.generic import CreateView, DeleteView, FormView, UpdateView

MOMENT = datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)


class PriceForm(forms.Form):
    amount = forms.DecimalField(min_value=1, label="Price in euros")
    day = forms.DateField(input_formats=["%d.%m.%Y"])
    tags = forms.MultipleChoiceField(choices=[("new", "New"), ("old", "Old")], required=False)
    is_net = forms.BooleanField(required=False)
    when = forms.SplitDateTimeField(required=False)


class SearchForm(forms.Form):
    q = forms.CharField()


class ContactForm(forms.Form):
    subject = forms.CharField(max_length=20)
    text = forms.CharField(widget=forms.Textarea, required=False)
    photo = forms.FileField(required=False)

    def __init__(self, *args: Any, sender: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sender = sender

    def clean_subject(self) -> str:
        subject: str = self.cleaned_data["subject"]
        if subject == self.sender.get_username():
            raise forms.ValidationError("Write about something else than yourself.")
        return subject


class ContactView(LoginRequiredMixin, FormView):
    """Write to the shop."""

    form_class = ContactForm
    template_name = "form.html"
    success_url = reverse_lazy("shop:thanks")
    prefix = "contact"

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "sender": self.request.user}

    def form_valid(self, form: Any) -> HttpResponse:
        messages.success(self.request, f"Sent: {form.cleaned_data['subject']}")
        return super().form_valid(form)


class AddGroupView(CreateView):
    model = Group
    fields = ["name"]
    template_name = "form.html"
    success_url = reverse_lazy("shop:thanks")


class TeamForm(forms.ModelForm):
    since = forms.DateTimeField(initial=datetime(2026, 1, 1, 12, tzinfo=UTC), required=False)
    note = forms.CharField(initial="none", required=False)
    is_urgent = forms.BooleanField(required=False)

    class Meta:
        model = Group
        fields = ["name", "permissions"]


class EditGroupView(UpdateView):
    model = Group
    form_class = TeamForm
    template_name = "form.html"

    def form_valid(self, form: Any) -> HttpResponse:
        form.save()
        shown = {name: form.cleaned_data[name] for name in ("name", "note", "is_urgent")}
        shown["since"] = form.cleaned_data["since"].astimezone(UTC).isoformat()
        rights = form.cleaned_data["permissions"].count()
        return HttpResponse(f"<p>{shown}</p><p>{rights} rights</p>")


class MomentForm(forms.ModelForm):
    """Has moments of every kind, and a secret."""

    whole = forms.DateTimeField(initial=MOMENT)
    split = forms.SplitDateTimeField(initial=MOMENT)
    time = forms.TimeField(initial=MOMENT.time())
    token = forms.CharField(required=False, widget=forms.PasswordInput)

    class Meta:
        model = Group
        fields = ["name"]


class MomentView(UpdateView):
    model = Group
    form_class = MomentForm
    template_name = "form.html"
    initial = {"token": "hash of it"}

    def form_valid(self, form: Any) -> HttpResponse:
        data = form.cleaned_data
        times = [data[name].astimezone(UTC).isoformat() for name in ("whole", "split")]
        return JsonResponse({"times": [*times, str(data["time"])], "token": data["token"]})


class OptionsForm(forms.ModelForm):
    options = forms.JSONField(required=False, initial={"a": 1})

    class Meta:
        model = Group
        fields = ["name"]


class OptionsView(UpdateView):
    model = Group
    form_class = OptionsForm
    template_name = "form.html"

    def form_valid(self, form: Any) -> HttpResponse:
        return JsonResponse(form.cleaned_data)


class SilentEditView(EditGroupView):
    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse("nothing to see")


class RemoveGroupView(DeleteView):
    model = Group
    success_url = reverse_lazy("shop:thanks")


class ChangingView(FormView):
    def get_form_class(self) -> Any:
        return PriceForm if self.request.GET else ContactForm
