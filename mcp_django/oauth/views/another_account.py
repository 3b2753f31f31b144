"""For people who are signed in with an account that may not do what is asked; another one of
theirs may. A client that was told at once would only send them here again.
"""

from __future__ import annotations

from django.contrib.auth import logout
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse

from mcp_django.oauth.authorization_response import Refused, WrongAccount, with_issuer
from mcp_django.oauth.issuer import issuer_of
from mcp_django.oauth.pages import show


def offer(request: HttpRequest, refusal: Refused) -> HttpResponse | None:
    """A page of 403: sign in with another account, or go back to the client with the error.

    ``None`` where another account would not help, for ``prompt=none``, and after the user's answer.
    """
    silently = "none" in request.GET.get("prompt", "").split()
    if silently or request.method != "GET" or not isinstance(refusal, WrongAccount):
        return None
    location = with_issuer(refusal.location(), issuer_of(request))
    return show(request, "another_account.html", {"location": location}, status=403)


def switch(request: HttpRequest, path: str) -> HttpResponse:
    """Sign the user out and send him to the site's login page, which leads to ``path``."""
    logout(request)
    return redirect_to_login(path)
