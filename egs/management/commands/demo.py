"""`manage.py demo` (`make demo`) runs the whole system in one process, with a simulated fleet."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from argparse import ArgumentParser
from datetime import datetime
from importlib import import_module
from multiprocessing import get_context
from typing import Any, Final

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from core.clock import db_now
from core.locks import single_runner
from egs.demo import provider, start
from egs.demo.company import COMPANY_S, company_go_on, company_is_there, company_make, works_by_slice
from egs.demo.old_readings import old_readings_write
from egs.runner import serve_all
from slices.models import Project

# An empty, migrated database. `make` makes it anew when a migration has changed.
MIGRATED: Final = settings.BASE_DIR / "var" / "migrated.sqlite3"
ENTRY_SLOWDOWN: Final = 6.0  # checks take so much longer than in a bare demo, so that a visitor can follow them


class Command(BaseCommand):
    help = "Serve EGS with a simulated fleet of two clusters. Its data stay for the next start, unless --fresh."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--fresh", action="store_true", help="forget what earlier runs left behind")
        parser.add_argument("--empty", action="store_true", help="no company: tenants and a fleet, and nothing has happened yet")
        parser.add_argument("--oidc", action="store_true", help="start an identity provider, too, and offer to sign in by it")

    def handle(self, *args: Any, **options: Any) -> None:
        port = options["port"]
        if options["oidc"] and not settings.EGS_OIDC_PROVIDERS:
            provider.restart_with_provider(_free_port())
        _refuse_taken_port(port)
        with single_runner("demo") as mine:
            if not mine:
                raise CommandError(
                    f"Another demo runs on {settings.EGS_VAR_DIR}. Stop it, or give this one a place of its own: "
                    "EGS_VAR_DIR=/tmp/egs make demo PORT=8001"
                )
            self._serve(port, is_fresh=options["fresh"], is_bare=options["empty"])

    def _serve(self, port: int, *, is_fresh: bool, is_bare: bool) -> None:
        if is_fresh:
            _forget()
        _migrate()
        url, started_at = f"http://127.0.0.1:{port}", db_now()
        start.demo_json().unlink(missing_ok=True)  # an earlier run's
        if not is_bare and not Project.objects.exists():
            self.stdout.write("A company plays two weeks of work …")
            _play(now=started_at)
        is_company = not is_bare and company_is_there()
        if not is_bare and not is_company:
            self.stdout.write("No company works in what an earlier run left behind; make demo FRESH=1 makes one.")
        start.seed(now=started_at)
        tokens = start.tokens_issue(now=started_at)
        provider_text = ""
        if settings.EGS_OIDC_PROVIDERS:
            provider.groups_seed(now=started_at)
            people = provider.provider_start(url)
            provider_text = f"\nOr sign in by its identity provider as emma or otto, with any password. Their groups: {people}.\n"
        works = works_by_slice() if is_company else {}
        processes = start.agents(url=url, now=started_at, works=works, slowdown=ENTRY_SLOWDOWN if is_company else 1.0)

        def on_start() -> None:
            start.agents_start(processes)
            self.stdout.write("The simulated fleet joins …")
            start.when_joined(on_ready, since=started_at)

        def on_ready() -> None:
            path = start.announce(url=url, tokens=tokens)
            self.stdout.write(
                f"\nEGS is ready: {url}\n\n"
                f"  admin token  {tokens.admin}\n"
                f"  user token   {tokens.user}   (ada: owner of workspace vision, viewer of speech)\n\n"
                f"Also in {path}. Open {url} and sign in with one of them, or try:\n"
                f'  curl -s {url}/api/v1/shapes/ -H "Authorization: Bearer {tokens.user}"\n'
                f"{provider_text}"
            )
            if is_company:
                threading.Thread(target=_go_on, args=(works,), name="egs-demo-company", daemon=True).start()

        serve_all(host="127.0.0.1", port=port, on_start=on_start)


def _migrate() -> None:
    """A new database of the demo is a copy of one that `make` has migrated, since that takes as long as all the rest."""
    path = settings.EGS_VAR_DIR / "egs.sqlite3"
    if MIGRATED.exists() and not path.exists() and settings.DATABASES["default"]["NAME"] == str(path):
        shutil.copyfile(MIGRATED, path)
    call_command("migrate", verbosity=0)


def _play(*, now: datetime) -> None:
    """Plays in a process of its own, whose memory goes with it. Meanwhile this one loads what serves pages."""
    connections.close_all()
    player = get_context("fork").Process(target=company_make, kwargs={"now": now}, daemon=True)
    player.start()
    for name in ("egs.asgi", settings.ROOT_URLCONF):
        import_module(name)
    player.join()
    if player.exitcode:
        raise CommandError("The company could not be made: the error is above. make demo FRESH=1 begins anew.")


def _go_on(works: dict[str, str]) -> None:
    try:
        old_readings_write(works=works)
        while True:
            time.sleep(COMPANY_S)
            company_go_on(now=db_now())
    finally:
        connections.close_all()


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
