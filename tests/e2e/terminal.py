"""Types a member's commands into a terminal with an own kubeconfig, and keeps the output for assertions and the documentation."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.processes import wait_for
from tests.kube.cluster import SOON_S

# Names a folder in which transcripts stay.
KEPT_IN = "EGS_TRANSCRIPTS"


class Terminal:
    """Each command is a line as typed, of kubectl alone; its file arguments are in `folder`."""

    def __init__(self, *, programs: Path, kubeconfig: Path, folder: Path) -> None:
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{programs}:{os.environ['PATH']}"}
        self._folder = folder
        self._shown: list[str] = []

    def file(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)
        self._show(f"cat {name}", text)

    def run(self, line: str, *, fails: bool = False) -> str:
        """Returns what it prints, errors included."""
        done = subprocess.run(shlex.split(line), cwd=self._folder, env=self._env, capture_output=True, text=True, check=False)
        text = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{line}: {text}"
        self._show(line, text)
        return text

    def quietly(self, line: str) -> str:
        """Runs it for a test to look, not for people to read."""
        done = subprocess.run(shlex.split(line), cwd=self._folder, env=self._env, capture_output=True, text=True, check=True)
        return done.stdout

    @contextmanager
    def beside(self, line: str) -> Iterator[Callable[[], str]]:
        """It goes on printing in another window meanwhile: gives what it has printed."""
        path = self._folder / "beside.txt"
        with path.open("wb") as out:
            child = subprocess.Popen(shlex.split(line), cwd=self._folder, env=self._env, stdout=out, stderr=out)
        try:
            wait_for("its first line", path.read_text, within_s=SOON_S)
            yield path.read_text
        finally:
            child.terminate()
            child.wait()
        self._show(line, path.read_text())

    def save(self, name: str) -> None:
        if folder := os.environ.get(KEPT_IN):
            (Path(folder) / f"{name}.txt").write_text("\n".join(self._shown))

    def _show(self, line: str, text: str) -> None:
        self._shown.append(f"$ {line}\n{text.rstrip()}\n")
