"""The demo's accounts. Their passwords are public: never create them where others can sign in.

Their tokens are derived from the secret key of the installation. So each start can print them,
although the database contains only their digests, and no two installations share them.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

from django.contrib.auth.models import Group, Permission, User
from django.utils.crypto import salted_hmac

from mcp_django.models import TOKEN_PREFIX, AccessToken, token_digest

VIEWING = ("view_airport", "view_country", "view_notice")
DESK_GROUP, TRAINEES = "Operations desk", "Trainees"
# Desk users cannot delete notices: closed ones stay on record.
PERMISSIONS = {DESK_GROUP: (*VIEWING, "add_notice", "change_notice"), TRAINEES: VIEWING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user that each start creates if it is missing."""

    username: str
    password: str
    purpose: str
    is_staff: bool = False
    is_superuser: bool = False
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedToken:
    """A derived token; `is_usable` is false once it was revoked in the admin."""

    plaintext: str
    is_usable: bool


ADMIN = Account(
    username="admin",
    password="airports-admin",
    purpose="has every permission",
    is_staff=True,
    is_superuser=True,
)
DESK = Account(
    username="desk",
    password="airports-desk",
    purpose="publishes and closes notices",
    is_staff=True,
    groups=(DESK_GROUP,),
)
TRAINEE = Account(
    username="trainee",
    password="airports-trainee",
    purpose="reads what the desk reads, and cannot write",
    is_staff=True,
    groups=(TRAINEES,),
)
GUEST = Account(username="guest", password="airports-guest", purpose="reads about airports")
ACCOUNTS = (ADMIN, DESK, TRAINEE, GUEST)


def create_accounts() -> None:
    """Create the accounts that are missing; existing ones are not changed."""
    for name, codenames in PERMISSIONS.items():
        group, created = Group.objects.get_or_create(name=name)
        if created:
            group.permissions.set(Permission.objects.filter(codename__in=codenames))
    for account in ACCOUNTS:
        if not User.objects.filter(username=account.username).exists():
            _create(account)


def issue_token(account: Account) -> IssuedToken:
    """Return the account's token, which is the same at each call; issue it at the first call."""
    key = salted_hmac("demo_project.desk.accounts", account.username, algorithm="sha256").digest()
    secret = base64.urlsafe_b64encode(key).decode().rstrip("=")
    plaintext = TOKEN_PREFIX + secret
    token = AccessToken.objects.filter(digest=token_digest(plaintext)).first()
    if token is None:
        user = User.objects.get(username=account.username)
        token, plaintext = AccessToken.objects.issue(user, name="Demo", secret=secret)
    return IssuedToken(plaintext=plaintext, is_usable=token.is_usable)


def _create(account: Account) -> None:
    user = User.objects.create_user(
        account.username,
        password=account.password,
        is_staff=account.is_staff,
        is_superuser=account.is_superuser,
    )
    user.groups.set(Group.objects.filter(name__in=account.groups))
