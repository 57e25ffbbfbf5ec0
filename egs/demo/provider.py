"""Runs a real identity provider beside the demo: `make demo OIDC=1`. It knows the people of PEOPLE and accepts any password."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Final

from django.conf import settings

from accounts.models import GroupRole, PlatformRole
from slices.models import Role, Slice, SliceGroup

KEY: Final = "demo"
PEOPLE: Final = {"emma": {"groups": ["vision-team"]}, "otto": {"groups": ["gpu-admins"]}}
VARIABLE: Final = "EGS_OIDC_PROVIDERS"


def restart_with_provider(port: int) -> None:
    """Starts this very command again with the provider in its settings, which are read when a process begins."""
    entry = {"key": KEY, "label": "the demo's identity provider", "issuer": f"http://127.0.0.1:{port}"}
    entry |= {"client_id": "egs", "client_secret": "egs-demo-secret"}
    os.environ[VARIABLE] = json.dumps([entry])
    os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - the same command


def provider_start(url: str) -> Path:
    """Returns the file that says who is in which group; the provider reads it at each sign-in."""
    people = settings.EGS_VAR_DIR / "demo-people.json"
    people.write_text(json.dumps(PEOPLE, indent=2) + "\n")
    node = shutil.which("node") or str(Path(sys.executable).with_name("node"))
    port = settings.EGS_OIDC_PROVIDERS[0]["issuer"].rpartition(":")[2]
    command = [node, str(settings.BASE_DIR / "deploy/oidc-provider.mjs"), port, str(people), url]
    with (settings.EGS_VAR_DIR / "demo-provider.log").open("ab") as log:
        provider = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - our own script
    atexit.register(provider.terminate)
    return people


def groups_seed(*, now: datetime) -> None:
    terms = {"role": PlatformRole.ADMIN, "created_at": now}
    GroupRole.objects.get_or_create(provider=KEY, group="gpu-admins", defaults=terms)
    vision = Slice.objects.get(name="vision")
    SliceGroup.objects.get_or_create(slice=vision, provider=KEY, group="vision-team", defaults={"role": Role.EDITOR, "created_at": now})
