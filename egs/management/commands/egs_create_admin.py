"""`manage.py egs_create_admin NAME`: the first administrator. There is none by default, and no default password anywhere."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.models import Scope, User
from accounts.services import token_issue, user_create
from egs.clock import db_now
from egs.errors import EgsError


class Command(BaseCommand):
    help = "Make an administrator, if NAME is not one yet, and print a new token of his: shown once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--days", type=int, default=90, help="life of the token")

    def handle(self, *args: Any, **options: Any) -> None:
        now = db_now()
        user = User.objects.filter(name=options["name"]).first()
        if user is not None and not user.is_admin:
            raise CommandError(f"{user.name} is a user without administrator's rights. Choose another name.")
        user = user or user_create(name=options["name"], is_admin=True, now=now)
        try:
            issued = token_issue(user=user, name="first", scopes=list(Scope), life=timedelta(days=options["days"]), now=now)
        except EgsError as error:
            raise CommandError(error.detail) from None
        self.stdout.write(issued.plain)
