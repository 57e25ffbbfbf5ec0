"""The wheel on a machine without the project: pipx installs it, with what it needs from the package registry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.client.hub import Egs, Hub
from tests.e2e.processes import ROOT

pytestmark = pytest.mark.soak
UV = [sys.executable, "-m", "uv"]


def run(*arguments: str | Path, env: dict[str, str] | None = None, given: str = "") -> str:
    done = subprocess.run(arguments, cwd="/", env=env, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_wheel_needs_nothing_of_the_project_and_keeps_the_token_in_a_keyring(hub: Hub, tmp_path: Path) -> None:
    run(*UV, "build", "--wheel", "-o", tmp_path, ROOT / "egs_client")
    wheel = next(tmp_path.glob("*.whl"))
    homes = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin"), "PIPX_MAN_DIR": str(tmp_path / "man")}
    pipx = (*UV, "tool", "run", "pipx")
    run(*pipx, "install", "--python", sys.executable, f"{wheel}[keyring]", env={**os.environ, **homes})
    run(*pipx, "inject", "egs-client", "keyrings.alt", env={**os.environ, **homes})
    egs, python = tmp_path / "bin" / "egs", tmp_path / "pipx" / "venvs" / "egs-client" / "bin" / "python"

    kept = {**Egs(tmp_path).environment(), "PYTHONPATH": "", "PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring"}
    kept["XDG_DATA_HOME"] = str(tmp_path / "data")
    run(egs, "login", hub.url, "--with-token", env=kept, given=hub.tokens["user_token"])

    assert "ada" in run(egs, "whoami", env=kept)
    assert hub.tokens["user_token"] not in (tmp_path / "config" / "egs" / "profiles.json").read_text()
    assert run(python, "-c", "import egs_client.cli.acts.commands, sys; print('django' in sys.modules)", env=kept) == "False\n"
