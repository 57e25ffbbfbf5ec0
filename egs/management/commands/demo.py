"""`manage.py demo` (`make demo`): the whole system in one process, with a simulated fleet."""

from __future__ import annotations

import shutil
import socket
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from core.clock import db_now
from core.locks import single_runner
from egs import demo, demo_provider
from egs.runner import serve_all


class Command(BaseCommand):
    help = "Serve EGS with a simulated fleet of two clusters. What was made stays for the next start, unless --fresh."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--fresh", action="store_true", help="forget what earlier runs left behind")

        parser.add_argument("--oidc", action="store_true", help="start an identity provider, too, and offer to sign in by it")

    def handle(self, *args: Any, **options: Any) -> None:
        port = options["port"]
        if options["oidc"] and not settings.EGS_OIDC_PROVIDERS:
            demo_provider.restart_with_provider(_free_port())
        _refuse_taken_port(port)
        with single_runner("demo") as mine:
            if not mine:
                raise CommandError(
                    f"Another demo runs on {settings.EGS_VAR_DIR}. Stop it, or give this one a place of its own: "
                    "EGS_VAR_DIR=/tmp/egs make demo PORT=8001"
                )
            self._serve(port, is_fresh=options["fresh"])

    def _serve(self, port: int, *, is_fresh: bool) -> None:
        if is_fresh:
            _forget()
        call_command("migrate", verbosity=0)
        url, started_at = f"http://127.0.0.1:{port}", db_now()
        demo.demo_json().unlink(missing_ok=True)  # an earlier run's
        tokens = demo.seed(now=started_at)
        provider_text = ""
        if settings.EGS_OIDC_PROVIDERS:
            demo_provider.groups_seed(now=started_at)
            people = demo_provider.provider_start(url)
            provider_text = f"\nOr sign in by its identity provider as emma or otto, with any password. Their groups: {people}.\n"
        processes = demo.agents(url=url, now=started_at)

        def on_start() -> None:
            demo.agents_start(processes)
            self.stdout.write("The simulated fleet joins …")
            demo.when_joined(on_ready, since=started_at)

        def on_ready() -> None:
            path = demo.announce(url=url, tokens=tokens)
            self.stdout.write(
                f"\nEGS is ready: {url}\n\n"
                f"  admin token  {tokens.admin}\n"
                f"  user token   {tokens.user}   (ada: owner of workspace vision, viewer of speech)\n\n"
                f"Also in {path}. Open {url} and sign in with one of them, or try:\n"
                f'  curl -s {url}/api/v1/shapes/ -H "Authorization: Bearer {tokens.user}"\n'
                f"{provider_text}"
            )

        serve_all(host="127.0.0.1", port=port, on_start=on_start)


def _refuse_taken_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise CommandError(f"Port {port} is taken. Stop what listens there, or choose another: make demo PORT=8001") from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _forget() -> None:
    """Empties the embedded database and the simulated clusters together: one without the other looks like a restored backup."""
    if settings.DATABASES["default"]["ENGINE"] != "django.db.backends.sqlite3":
        raise CommandError("--fresh empties the embedded database only; this one is not SQLite.")
    for path in settings.EGS_VAR_DIR.glob("egs.sqlite3*"):
        path.unlink()
    shutil.rmtree(settings.EGS_VAR_DIR / "demo", ignore_errors=True)
