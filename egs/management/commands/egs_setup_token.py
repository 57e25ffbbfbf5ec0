from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.people.setup import is_set_up, setup_token


class Command(BaseCommand):
    help = "Print the address, below EGS's own, where the first administrator sets EGS up. It works for an hour, and once."

    def handle(self, *args: Any, **options: Any) -> None:
        if is_set_up():
            raise CommandError("EGS has an administrator already.")
        self.stdout.write(f"/setup/?token={setup_token()}")
