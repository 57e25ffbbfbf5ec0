"""Makes users, the first administrator among them."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from rest_framework import serializers

from accounts.models import Scope, User
from accounts.services import token_issue, user_create
from core.clock import db_now
from core.errors import EgsError
from core.rest.fields import NewName


class Command(BaseCommand):
    help = "Make a user, if NAME is not one yet, and print a new token of his: shown once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--admin", action="store_true", help="administers the whole platform")
        parser.add_argument("--days", type=int, default=90, help="life of the token")

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        now, is_admin = db_now(), options["admin"]
        user = User.objects.filter(name=options["name"]).first()
        if user is not None and user.is_admin != is_admin:
            kind = "an administrator" if user.is_admin else "a user without administrator's rights"
            raise CommandError(f"{user.name} is {kind}. Choose another name.")
        user = user or user_create(name=_name(options["name"]), is_admin=is_admin, now=now)
        scopes = list(Scope) if is_admin else [Scope.READ, Scope.WRITE]
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
