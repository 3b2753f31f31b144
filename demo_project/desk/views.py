"""Pages of the desk, which MCP clients use through `register_view` and `register_form`."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse, reverse_lazy
from django.views.decorators.http import require_safe
from django.views.generic import CreateView, FormView

from demo_project.airports.models import Airport
from demo_project.desk.forms import NoticeForm, ProblemForm
from demo_project.desk.models import Notice

AROUND_KM = 150
NEIGHBORS = 20


@require_safe
@login_required
def notice_board(request: HttpRequest, airport: str) -> HttpResponse:
    """The briefing board of an airport (ICAO or IATA code): notices there and within 150 km."""
    try:
        place = Airport.objects.by_code(airport)
    except Airport.DoesNotExist as exc:
        raise Http404(str(exc)) from exc
    near = Airport.objects.nearest(place.position, count=NEIGHBORS + 1, max_km=AROUND_KM)
    others = [neighbor.airport for neighbor in near if neighbor.airport != place]
    current = Notice.objects.current().select_related("airport")
    context = {
        "airport": place,
        "here": current.filter(airport=place),
        "around": current.filter(airport__in=others),
        "around_km": AROUND_KM,
    }
    return render(request, "desk/notice_board.html", context)


class PublishNoticeView(PermissionRequiredMixin, CreateView):
    permission_required = "desk.add_notice"
    form_class = NoticeForm
    template_name = "desk/form.html"
    extra_context = {"title": "Publish a notice"}

    def form_valid(self, form: NoticeForm) -> HttpResponse:
        form.instance.created_by = self.request.user
        return super().form_valid(form)

    def get_success_url(self) -> str:
        return reverse("notice-board", args=[self.object.airport.icao])


class ReportProblemView(PermissionRequiredMixin, FormView):
    """Report something that is broken at an airport to maintenance, by mail."""

    permission_required = "desk.add_notice"
    form_class = ProblemForm
    template_name = "desk/form.html"
    extra_context = {"title": "Report a problem"}
    success_url = reverse_lazy("home")

    def form_valid(self, form: ProblemForm) -> HttpResponse:
        form.send(reporter=self.request.user)
        messages.success(self.request, f"Reported to {form.cleaned_data['airport']} maintenance.")
        return super().form_valid(form)
