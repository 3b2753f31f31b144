"""Registering views and forms, as a type checker sees it."""

from __future__ import annotations

from datetime import date

from django import forms
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.views.generic import FormView

from mcp_django import Context, mcp
from mcp_django.auth.permissions import IsStaff


class ContactForm(forms.Form):
    text = forms.CharField()


class ContactView(FormView[ContactForm]):
    form_class = ContactForm


class GroupForm(forms.ModelForm[Group]):
    class Meta:
        model = Group
        fields = ["name"]


def own_groups(ctx: Context) -> QuerySet[Group]:
    return Group.objects.filter(user=ctx.user)


mcp.register_view("shop:price_list", uri="shop://price-list/{season}", readable=True)
mcp.register_view("shop:search", query={"q": str, "since": date}, permission=IsStaff)
mcp.register_view("shop:contact", method="post", form=ContactForm, scopes=["shop:write"])
mcp.register_view("shop:briefing", kind="prompt", title="Briefing")
mcp.register_view("desk:today", urlconf="shop.desk_urls")
mcp.register_form(ContactView, destructive=False)
mcp.register_form("shop:contact", name="write", form=ContactForm)
mcp.register_form(GroupForm, permission=IsStaff)
mcp.register_form(GroupForm, instance="name", queryset=Group.objects.exclude(name="staff"))
mcp.register_form(GroupForm, instance="pk", queryset=own_groups)
