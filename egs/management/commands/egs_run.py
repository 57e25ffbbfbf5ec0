from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from egs.runner import serve_all


class Command(BaseCommand):
    help = "Serve the API and the agents, and run the allocator, in one process."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0)
        serve_all(
            host=options["host"],
            port=options["port"],
            on_start=lambda: self.stdout.write(f"EGS listens on http://{options['host']}:{options['port']}"),
        )
