"""Every kind of tool that can write a note, on one server that lets everybody in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.views.generic import CreateView
from rest_framework import serializers, viewsets

from mcp_django import Context, MCPServer, ModelTools
from mcp_django.auth.permissions import AllowAny
from tests.sites.audit.models import Note


class NoteForm(forms.ModelForm):
    class Meta:
        model = Note
        fields = ["text"]


def write_view(request: HttpRequest) -> HttpResponse:
    """Write a note."""
    Note.objects.create(text=request.POST["text"])
    return HttpResponse("written")


async def write_async_view(request: HttpRequest) -> HttpResponse:
    """Write a note."""
    await Note.objects.acreate(text=request.POST["text"])
    return HttpResponse("written")


class NoteView(CreateView):
    """Write a note."""

    model = Note
    form_class = NoteForm
    success_url = "/written/"


class NoteSerializer(serializers.ModelSerializer):
    class Meta:
        model = Note
        fields = ["id", "text"]


class NoteViewSet(viewsets.ModelViewSet):
    queryset = Note.objects.all()
    serializer_class = NoteSerializer
    permission_classes: list[Any] = []


class NoteAdmin(admin.ModelAdmin):
    fields = ["text"]


class AdminSite(admin.AdminSite):
    """An admin site apart from the one that all tests share."""


notes_admin = AdminSite("notes-admin")
notes_admin.register(Note, NoteAdmin)

notes = MCPServer("notes", permission=AllowAny)


@notes.tool
def write(text: str) -> str:
    """Write a note."""
    return Note.objects.create(text=text).text


@notes.tool
async def write_later(text: str) -> str:
    """Write a note, on an event loop."""
    return (await Note.objects.acreate(text=text)).text


@notes.tool
def report(ctx: Context, text: str) -> str:
    """Write a note between two messages."""
    ctx.report_progress(1, 2)
    Note.objects.create(text=text)
    ctx.report_progress(2, 2)
    return text


@notes.tool
async def report_later(ctx: Context, text: str) -> str:
    """Write a note between two messages, on an event loop."""
    await ctx.areport_progress(1, 2)
    await Note.objects.acreate(text=text)
    await ctx.areport_progress(2, 2)
    return text


@notes.tool(slow=True)
def write_slowly(text: str) -> str:
    """Write a note, which takes long."""
    return Note.objects.create(text=text).text


@notes.tool(slow=True)
async def write_slowly_later(text: str) -> str:
    """Write a note, which takes long, on an event loop."""
    return (await Note.objects.acreate(text=text)).text


@notes.tool(task="required")
def write_as_task(text: str) -> str:
    """Write a note as a task."""
    return Note.objects.create(text=text).text


@notes.tool(task="required")
async def write_as_task_later(text: str) -> str:
    """Write a note as a task, on an event loop."""
    return (await Note.objects.acreate(text=text)).text


@notes.register(Note)
class NoteTools(ModelTools[Note]):
    fields = ["id", "text"]
    tools = ["create", "update"]


notes.register_view("write", method="post", form=NoteForm, name="write_view")
notes.register_view("write-async", method="post", form=NoteForm, name="write_async_view")
notes.register_form(NoteView, name="write_form")

rest = MCPServer("notes-rest", permission=AllowAny)
rest.register_viewset(NoteViewSet, actions=["create", "partial_update"])

staff = MCPServer("notes-staff")
staff.register_admin(Note, site=notes_admin, tools=["create", "update"])
