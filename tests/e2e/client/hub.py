"""A hub of the demo as a process, and the `egs` command as people and pipelines run it."""

from __future__ import annotations

import codecs
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.processes import ROOT, START_S, Api, Running, demo_tokens, free_port, wait_for
from tests.migrated import copy_to_file

EGS = [sys.executable, "-m", "egs_client"]


class Hub:
    """It runs the demo with two simulated clusters. `ada` owns the workspace vision."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_to_file(folder / "egs.sqlite3")
        env = {**os.environ, "EGS_VAR_DIR": str(folder)}
        arguments = [sys.executable, "manage.py", "demo", "--empty", "--port", str(free_port())]
        self.process = Running(arguments, env=env, log=folder / "demo.log")
        self.start()
        self.ada, self.admin = (Api(self.url, self.tokens[name]) for name in ("user_token", "admin_token"))

    def start(self) -> None:
        (self.folder / "demo.json").unlink(missing_ok=True)
        self.process.start()
        self.tokens = wait_for("the demo", lambda: demo_tokens(self.folder), within_s=START_S)
        self.url = self.tokens["url"]

    def stop(self) -> None:
        self.ada.close()
        self.admin.close()
        self.process.stop()

    @contextmanager
    def stopped_until_asked(self) -> Iterator[Callable[[subprocess.Popen[str]], None]]:
        """The server stands still. Gives a function that waits until a process has sent it its request."""
        self.process.signal(signal.SIGSTOP)
        try:
            yield lambda asking: wait_for("its request", lambda: _has_socket(asking.pid), within_s=START_S)
        finally:
            self.process.signal(signal.SIGCONT)

    def end_all(self) -> None:
        for gpr in self.admin.get("/gprs/?ended=false&page_size=500")["results"]:
            for http, path in (("DELETE", ""), ("POST", "release/")):
                self.admin.raw(http, f"/gprs/{gpr['id']}/{path}")
        wait_for("an empty queue", lambda: not self.admin.get("/gprs/?ended=false")["results"], within_s=START_S)


def _has_socket(process: int) -> bool:
    with suppress(FileNotFoundError):  # it has closed a file meanwhile
        return any(os.readlink(link).startswith("socket:") for link in Path(f"/proc/{process}/fd").iterdir())
    return False


@dataclass(slots=True)
class Egs:
    """It stands for a person's terminal, with a home of its own and no login yet."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("EGS_", "XDG_", "_EGS"))}
        places = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config"), "XDG_CACHE_HOME": str(self.home / "cache")}
        return {**kept, **places, "TZ": "UTC", "COLUMNS": "80", "PYTHONPATH": str(ROOT), **self.env}

    def run(self, *arguments: str, code: int = 0, given: str = "") -> str:
        """Returns what it prints in a pipe. Any other exit code is a failure."""
        env = self.environment()
        done = subprocess.run([*EGS, *arguments], env=env, cwd=self.home, input=given, capture_output=True, text=True, check=False)
        text = done.stdout + done.stderr
        assert done.returncode == code, f"egs {' '.join(arguments)}: {done.returncode}\n{text}"
        assert "Traceback" not in text, text
        return text

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Its output is one pipe."""
        return subprocess.Popen(
            [*EGS, *arguments], env=self.environment(), cwd=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def at_terminal(self, *arguments: str) -> Terminal:
        return Terminal(self, arguments)


class Terminal:
    """The command at a terminal of 80 columns, where it can ask."""

    def __init__(self, egs: Egs, arguments: tuple[str, ...]) -> None:
        self._handle, inner = pty.openpty()
        env = {**egs.environment(), "TERM": "xterm"}
        self._child = subprocess.Popen([*EGS, *arguments], env=env, cwd=egs.home, stdin=inner, stdout=inner, stderr=inner)
        os.close(inner)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.shown = ""

    def wait_for(self, pattern: str) -> str:
        """Reads until the pattern is there; returns all that was shown."""
        while not re.search(pattern, self.shown):
            assert self._read(), f"{pattern} never came:\n{self.shown}"
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._handle, text.encode())

    def interrupt(self) -> None:
        self._child.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Reads the rest; the exit code."""
        while self._read():
            pass
        os.close(self._handle)
        return self._child.wait(timeout=START_S)

    def _read(self) -> bool:
        try:
            more = os.read(self._handle, 65536)
        except OSError:  # the other end is closed
            return False
        self.shown += self._decoder.decode(more)
        return bool(more)
