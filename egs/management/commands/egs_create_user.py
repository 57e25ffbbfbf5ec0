"""Makes users, the first administrator among them."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from rest_framework import serializers

from accounts.models import PlatformRole, Scope, User
from accounts.people.services import user_create
from accounts.tokens.services import token_issue
from core.clock import db_now
from core.errors import EgsError
from core.rest.fields import NewName

SCOPES_OF = {
    PlatformRole.MEMBER: [Scope.READ, Scope.WRITE],
    PlatformRole.AUDITOR: [Scope.READ, Scope.ADMIN],
    PlatformRole.ADMIN: list(Scope),
}


class Command(BaseCommand):
    help = "Make the user NAME, if there is none yet, and print a new token once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        roles = parser.add_mutually_exclusive_group()
        roles.add_argument("--admin", dest="role", action="store_const", const=PlatformRole.ADMIN, help="administers the whole platform")
        roles.add_argument(
            "--auditor", dest="role", action="store_const", const=PlatformRole.AUDITOR, help="sees everything, changes nothing"
        )
        parser.add_argument("--days", type=int, default=90, help="life of the token")

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        now, role = db_now(), options["role"] or PlatformRole.MEMBER
        user = User.objects.filter(name=options["name"]).first()
        if user is not None and user.role != role:
            raise CommandError(f"{user.name} has the role {PlatformRole(user.role).label.lower()}. Choose another name, or that role.")
        user = user or user_create(name=_name(options["name"]), role=role, now=now)
        scopes = SCOPES_OF[role]
        try:
            issued = token_issue(user=user, name="first", scopes=scopes, life=timedelta(days=options["days"]), now=now)
        except EgsError as error:
            raise CommandError(error.detail) from None
        self.stdout.write(issued.plain)


def _name(text: str) -> str:
    """Applies the API's rules for names. Raises CommandError."""
    try:
        return str(NewName().run_validation(text))
    except serializers.ValidationError as error:
        raise CommandError(f"name: {' '.join(str(part) for part in error.detail)}") from None
