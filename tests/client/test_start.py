"""A command imports what it needs, or each would take a third of a second to say anything."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.processes import ROOT

SLOW = ("asyncio", "httpx", "keyring", "msgspec", "rich", "yaml")


def test_help_imports_nothing_that_takes_long() -> None:
    told = f"atexit.register(lambda: print(set({SLOW}) & sys.modules.keys()))"
    code = f"import atexit, sys; {told}; sys.argv = ['egs', '--help']; from egs_client.cli.main import run; run()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "set()"


def test_the_sdk_imports_nothing_until_it_is_used() -> None:
    code = f"import sys, egs_client; print(set({SLOW}) & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
