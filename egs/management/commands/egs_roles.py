from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from accounts.roles_table import roles_table


class Command(BaseCommand):
    help = "Print who may do what, as docs/how-to/roles.md has it."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(roles_table())
