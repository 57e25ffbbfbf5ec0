from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from egs.runner import serve


class Command(BaseCommand):
    help = "Serve pages, API and agents. Ticks run in the Celery worker."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], options["port"]
        serve(host=host, port=port, on_start=lambda: self.stdout.write(f"EGS listens on http://{host}:{port}"))
